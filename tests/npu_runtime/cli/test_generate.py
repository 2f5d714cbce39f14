"""``npu generate`` prints what a model of transformers generates."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

from npu_ir.cli import main
from npu_ir.cli.console import escape_controls
from tests.support.language_models import generate, save_language_model, save_word_tokenizer
from tests.support.rows import each_row

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_language_model(path)
    return path


def without_end(text: str) -> str:
    """Return a text without lines and characters that have not ended: its last token is any byte."""
    return text.rstrip("\n\ufffd")


def test_the_text_is_that_of_transformers(folder: Path, capsys: Capture) -> None:
    text = "to be, "
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = torch.tensor([tokenizer(text)["input_ids"]])
    expected = generate(AutoModelForCausalLM.from_pretrained(folder).eval(), tokens, 9)
    capsys.readouterr()

    assert main(["generate", str(folder), text, "--max-new-tokens", "9"]) == 0

    shown, said = capsys.readouterr()
    assert without_end(shown) == without_end(escape_controls(tokenizer.decode(expected[0])))
    assert "9 tokens, the first after" in said


def test_a_model_with_an_encoder_reads_the_text(tmp_path: Path, capsys: Capture) -> None:
    save_language_model(tmp_path, "t5")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokens = torch.tensor([tokenizer("to be, ")["input_ids"]])
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    expected = generate(model, tokens, 9)
    capsys.readouterr()

    assert main(["generate", str(tmp_path), "to be, ", "--max-new-tokens", "9"]) == 0

    shown = capsys.readouterr().out
    assert without_end(shown) == without_end(escape_controls(tokenizer.decode(expected[0, 1:])))


@pytest.mark.parametrize(
    ("word", "shown"),
    [("word{}", r"word7 word7( word\d+){5}\n"), ("\x1b{}", r"\\x1b7 \\x1b7( \\x1b\d+){5}\n")],
)
def test_words_are_apart_and_nothing_reaches_the_terminal(
    word: str, shown: str, tmp_path: Path, capsys: Capture
) -> None:
    save_language_model(tmp_path)
    save_word_tokenizer(tmp_path, [word.format(index) for index in range(256)])
    text = word.format(7)
    capsys.readouterr()

    assert main(["generate", str(tmp_path), f"{text} {text}", "--max-new-tokens", "5"]) == 0

    assert re.fullmatch(shown, capsys.readouterr().out)


@pytest.mark.parametrize("form", ["int4", "int4-dynamic"])
def test_weights_are_quantized(form: str, folder: Path, capsys: Capture) -> None:
    shown = []
    for backend in ("aten", "host"):
        words = ["to be, ", "--max-new-tokens", "9", "--quantize", form, "--backend", backend]
        assert main(["generate", str(folder), *words]) == 0
        shown.append(capsys.readouterr().out)

    assert shown[0] == shown[1]


def test_a_model_that_reads_sound_is_refused(tmp_path: Path, capsys: Capture) -> None:
    save_language_model(tmp_path, "whisper")
    capsys.readouterr()

    assert main(["generate", str(tmp_path), "to be"]) == 2

    assert "whisper reads sound, not text" in capsys.readouterr().err


def test_a_text_that_is_drawn_depends_on_the_seed(folder: Path, capsys: Capture) -> None:
    words = [
        "generate",
        str(folder),
        "to be",
        "--max-new-tokens",
        "12",
        "--temperature",
        "3",
        "--top-k",
        "50",
    ]
    shown = []
    for seed in ("1", "2", "1"):
        assert main([*words, "--seed", seed]) == 0
        shown.append(capsys.readouterr().out)

    assert shown[0] == shown[2] != shown[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such-folder", "text"], "there is no folder 'no-such-folder'"),
        (["FOLDER", ""], "the tokenizer makes no tokens of the text"),
        (["FOLDER", "text", "--temperature", "-1"], "temperature is -1.0, not a number of 0 or more"),
        (
            ["FOLDER", "text", "--max-length", "5"],
            "that takes 67 positions, and --max-length is 5\n  fix: give --max-length 67, or a smaller",
        ),
        (
            ["FOLDER", "text", "--max-new-tokens", "5000"],
            "the text has 4 tokens, and --max-new-tokens is 5000: the model has 2048 positions",
        ),
        (
            ["FOLDER", "text", "--seed", str(2**64)],
            "seed is 18446744073709551616, not an integer from 0 to 2**64",
        ),
    ],
)
def test_wrong_uses_are_refused(words: list[str], message: str, folder: Path, capsys: Capture) -> None:
    given = [str(folder) if word == "FOLDER" else word for word in words]

    assert main(["generate", *given]) == 2

    shown, said = capsys.readouterr()
    assert message in said
    assert not shown


def with_content(name: str, content: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_text(content, encoding="utf-8")

    return change


def with_option(name: str, option: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        options = {**json.loads(file.read_text(encoding="utf-8")), name: option}
        file.write_text(json.dumps(options), encoding="utf-8")

    return change


def without_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def without_configuration(folder: Path) -> None:
    (folder / "config.json").unlink()


DAMAGED = {
    "no configuration": (without_configuration, "model has no config.json", "give a folder that"),
    "half a configuration": (
        with_content("config.json", "{"),
        "read a configuration here",
        "save_pretrained",
    ),
    "a list": (with_content("config.json", "[]"), "read a configuration here", "save_pretrained"),
    "an unknown model": (
        with_option("model_type", "none such"),
        "model type `none such`",
        "a newer transformers",
    ),
    "no heads": (with_option("num_attention_heads", 0), "read a configuration here", "save_pretrained"),
    "half a configuration of generation": (
        with_content("generation_config.json", "{"),
        "read a configuration of generation here",
        "save_pretrained",
    ),
    "half a tokenizer": (with_content("tokenizer.json", "{"), "read a tokenizer here", "get tokenizer.json"),
    "a tokenizer without tokens": (
        with_content("tokenizer.json", "{}"),
        "read a tokenizer here",
        "get tokenizer.json",
    ),
    "no tokenizer": (without_tokenizer, "read a tokenizer here", "tokenizer.save_pretrained(folder)"),
}


@each_row("change, message, fix", DAMAGED)
def test_a_damaged_folder_is_named_with_what_to_do(
    change: Callable[[Path], None], message: str, fix: str, folder: Path, tmp_path: Path, capsys: Capture
) -> None:
    damaged = tmp_path / "model"
    shutil.copytree(folder, damaged)
    change(damaged)

    assert main(["generate", str(damaged), "to be", "--max-new-tokens", "3"]) == 2

    said = capsys.readouterr().err
    assert message in said
    assert str(damaged) in said
    assert fix in said.partition("fix:")[2]
