"""Tests that fail on some releases of PyTorch for reasons of its own, each with the cause."""

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownFailure:
    """Tests that are expected to fail: one that passes fails the run, and is to be removed from its row.

    Attributes:
        releases: The minor releases of PyTorch on which they fail, such as "2.9 2.10".
        cause: What PyTorch does there, as a sentence without its full stop; it is on the page.
        tests: By file of a folder of `tests`, the names of tests, as patterns of `fnmatch` in which ``[``
            stands for itself.
    """

    releases: str
    cause: str
    tests: Mapping[str, tuple[str, ...]]

    def patterns(self) -> Iterator[str]:
        """Yield the ids of the tests, as patterns."""
        for file, names in self.tests.items():
            yield from (f"tests/{file}::{name}" for name in names)

    def has(self, test: str, release: str) -> bool:
        """Return whether a test, by its id, is expected to fail on a minor release."""
        return release in self.releases.split() and any(
            fnmatch.fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in self.patterns()
        )


KNOWN_FAILURES: tuple[KnownFailure, ...] = (
    KnownFailure(
        "2.9",
        "torch.export refuses a model whose `forward` sets an attribute of it, as recurrent layers do",
        {
            "npu_ir/capture/test_capture_footguns.py": (
                "test_python_side_effects_happen_once_and_attributes_are_put_back",
            ),
            "npu_ir/capture/test_export_messages.py": (
                "test_what_pytorch_does_by_itself_is_captured_without_a_word",
                "test_a_tensor_that_forward_keeps_is_warned_of_each_time",
            ),
            "npu_ir/capture/test_held_state.py": (
                "test_the_graph_is_that_of_the_next_call",
                "test_verifying_leaves_attributes_as_they_were",
            ),
            "npu_ir/capture/test_held_tensors.py": (
                "test_an_attribute_that_forward_computes_anew_is_not_asked_for",
                "test_what_forward_hangs_on_an_object_is_taken_off_again",
            ),
            "npu_ir/capture/test_refusals.py": (
                "test_a_refused_model_and_what_it_writes_to_are_as_before",
                "test_an_example_computes_what_eager_computes[model_attr_mutation]",
            ),
            "npu_ir/cli/test_capture_errors.py": (
                "test_errors_and_warnings_are_short_in_a_process_of_its_own_without_numpy",
            ),
            "npu_passes/library/test_decompose.py": ("test_an_lstm_stays_where_its_parts_are_for_cpus_only",),
        },
    ),
    KnownFailure(
        "2.9",
        "torch.export asks for guards on sizes where later releases do without",
        {
            "npu_ir/capture/test_dynamic_writes.py": ("test_writes_with_an_open_batch_size",),
            "npu_ir/capture/test_refusals.py": (
                "test_an_example_computes_what_eager_computes[assume_constant_result]",
                "test_an_example_with_dynamic_shapes_computes_what_eager_computes",
            ),
        },
    ),
    KnownFailure(
        "2.9 2.10 2.11 2.12",
        "torch.export loses sizes that depend on data in a branch",
        {"npu_ir/graph/test_regions.py": ("test_sizes_learned_in_a_region_are_forgotten_after_it",)},
    ),
    KnownFailure(
        "2.9",
        "torch.export refuses tensor subclasses as inputs by an assertion without a text",
        {"npu_ir/capture/test_empty_weights.py": ("test_a_wrapped_input_is_refused",)},
    ),
    KnownFailure(
        "2.9 2.10 2.11 2.12",
        "torch.export fails by an assertion of its own, or refuses with another text, before it is our turn",
        {
            "npu_ir/capture/test_empty_weights.py": ("test_a_wrapped_parameter_as_a_whole_is_refused",),
            "npu_ir/capture/test_refusals.py": ("test_a_model_without_a_graph_is_refused_with_the_reason",),
        },
    ),
    KnownFailure(
        "2.9",
        "symbolic sizes have no operator `^`",
        {
            "npu_ir/capture/test_size_branches.py": (
                "test_a_branch_taken_by_a_size_is_a_constraint",
                "test_a_program_that_was_saved_and_loaded_runs_where_it_did_before",
            )
        },
    ),
    KnownFailure(
        "2.9",
        "`ExportedProgram.run_decompositions` leaves the first version of `auto_functionalized`",
        {
            "npu_ir/capture/test_writes.py": (
                "test_a_program_that_pytorch_made_functional_is_converted_too",
                "test_of_views_that_pytorch_made_functional_those_with_strides_of_their_own_are_refused",
            )
        },
    ),
    KnownFailure(
        "2.9 2.10",
        "the control-flow operator `map` fixes the number of rows",
        {"npu_ir/capture/test_random_programs.py": ("test_every_step_is_captured_with_rows_left_open",)},
    ),
    KnownFailure(
        "2.9 2.10 2.11",
        "a checkpoint leaves calls of its bookkeeping in the exported program",
        {"npu_ir/capture/test_refusals.py": ("test_special_calls_are_dropped_or_what_is_in_them",)},
    ),
    KnownFailure(
        "2.10",
        "torch.export refuses a text in place of sizes by an assertion without a text",
        {
            "npu_ir/capture/test_export_messages.py": (
                "test_the_fix_of_wrong_dynamic_shapes_says_how_they_are_written",
            )
        },
    ),
    KnownFailure(
        "2.11",
        "torch.export fails by a TypeError of its own where a result is a dataclass that cannot be hashed",
        {
            "npu_ir/capture/test_export_messages.py": (
                "test_a_result_of_an_unknown_type_is_told_by_its_name_alone",
            )
        },
    ),
    KnownFailure(
        "2.9 2.10 2.11",
        "`torch.sym_sum` takes one sequence only, not any number of arguments",
        {"npu_ir/ops/test_scalars.py": ("test_a_program_on_numbers_computes",)},
    ),
    KnownFailure(
        "2.9",
        "`silu_backward` is traced as the ops that it consists of, so that a fusion is missed",
        {
            "npu_passes/library/training/test_fuse_linear_backward.py": (
                "test_the_gradients_of_two_layers_become_two_ops",
            )
        },
    ),
    KnownFailure(
        "2.9",
        "tensors have no C functions of DLPack, so that calls of native programs take the slower way",
        {
            "npu_cuda/backend/test_programs.py": (
                "test_quick_runs_use_one_program_and_return_tensors_like_any_other",
                "test_quick_runs_leave_what_is_not_exactly_as_stated_to_runs",
                "test_quick_runs_take_the_inputs_that_are_not_bound",
            )
        },
    ),
)


def minor_release(version: str) -> str:
    """Return the minor release of a version: "2.9" of "2.9.1+cpu"."""
    return ".".join(version.split(".")[:2])


def known_failure(test: str, version: str) -> KnownFailure | None:
    """Return the row of a test, by its id, for a version of PyTorch."""
    return next((row for row in KNOWN_FAILURES if row.has(test, minor_release(version))), None)
