"""Metadata of the four distributions: what they agree on, and what their extras bring."""

import re
from typing import Any

import pytest

import npu_ir
from tests.support.places import ROOT

tomllib = pytest.importorskip("tomllib", reason="in the standard library from Python 3.11 on")

NAMES = ("npu-cuda", "npu-ir", "npu-passes", "npu-runtime")
LANGUAGE_OF_ITS_OWN = {"Programming Language :: C++"}


def project(name: str) -> dict[str, Any]:
    text = (ROOT / "packages" / name / "pyproject.toml").read_text(encoding="utf-8")
    content: dict[str, Any] = tomllib.loads(text)["project"]
    return content


def required(name: str) -> list[str]:
    content = project(name)
    extras = content.get("optional-dependencies", {}).values()
    return [*content["dependencies"], *(item for extra in extras for item in extra)]


@pytest.mark.smoke
@pytest.mark.parametrize("key", ["authors", "requires-python", "readme"])
def test_the_distributions_agree(key: str) -> None:
    stated = [project(name)[key] for name in NAMES]

    assert stated == [stated[0]] * len(NAMES)


def test_the_licence_is_the_same_but_for_what_is_bundled() -> None:
    stated = {name: (project(name)["license"], project(name)["license-files"]) for name in NAMES}

    dagre = ["LICENSE", "src/npu_ir/viz/page/assets/dagre.LICENSE.txt"]
    assert stated.pop("npu-ir") == ("Apache-2.0 AND MIT", dagre)
    assert stated == dict.fromkeys(stated, ("Apache-2.0", ["LICENSE"]))


def test_classifiers_are_the_same_but_for_the_language() -> None:
    stated = {name: set(project(name)["classifiers"]) - LANGUAGE_OF_ITS_OWN for name in NAMES}

    assert stated == dict.fromkeys(NAMES, stated["npu-ir"])
    assert any(item.startswith("Operating System :: ") for item in stated["npu-ir"])


def test_no_distribution_names_an_address_that_the_repository_does_not_have() -> None:
    assert [name for name in NAMES if "urls" in project(name)] == []


def test_every_requirement_of_ours_is_of_exactly_this_version() -> None:
    ours = {item for name in NAMES for item in required(name) if item.startswith("npu-")}

    versions = {re.fullmatch(r"(npu-[a-z]+)(\[[a-z]+\])?==(.+)", item) for item in ours}
    assert None not in versions
    assert {match[3] for match in versions if match is not None} == {npu_ir.__version__}


def test_the_extra_all_brings_every_distribution_and_every_other_extra() -> None:
    brought = set(project("npu-ir")["optional-dependencies"]["all"])

    names = {item.partition("==")[0].partition("[")[0] for item in brought if item.startswith("npu-")}
    assert names == set(NAMES) - {"npu-ir"}
    assert set(project("npu-ir")["optional-dependencies"]["cli"]) <= brought
    assert any(item.startswith("npu-runtime[transformers]") for item in brought)


def test_the_extra_cuda_brings_every_distribution() -> None:
    brought = project("npu-ir")["optional-dependencies"]["cuda"]

    assert {item.partition("==")[0] for item in brought if item.startswith("npu-")} == set(NAMES) - {"npu-ir"}


def test_a_version_stands_in_one_place_of_each_distribution() -> None:
    for name in NAMES:
        assert "version" in project(name)["dynamic"], name
