"""``npu cache``."""

from npu_ir.cli import main


def test_files_are_counted_and_removed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path))
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / f"{'0' * 16}-{'a' * 64}.safetensors").write_bytes(bytes(1200))

    codes = main(["cache"]), main(["cache", "--clear"]), main(["cache"])
    text = capsys.readouterr().out

    assert not any(codes)
    assert "1,200" in text
    assert "1 file removed" in text
    assert not list((tmp_path / "steps").iterdir())


def test_a_cache_that_is_off_is_named(monkeypatch, capsys):
    monkeypatch.setenv("NPU_CACHE", "off")

    assert not main(["cache"])
    assert "off: NPU_CACHE=off" in capsys.readouterr().out


def test_files_of_others_are_not_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path))
    for folder in ("steps", "documents"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "letter").touch()

    code = main(["cache", "--clear"])

    assert not code
    assert (tmp_path / "steps" / "letter").exists()
    assert (tmp_path / "documents" / "letter").exists()


def test_a_relative_folder_is_an_error(monkeypatch, capsys):
    monkeypatch.setenv("NPU_CACHE", "cache")

    code = main(["cache", "--clear"])

    assert code
    assert "NPU_CACHE=cache is relative" in capsys.readouterr().err
