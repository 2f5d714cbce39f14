"""``npu cache``."""

from npu_ir.cli import main


def test_files_are_counted_and_removed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("NPU_CACHE", str(tmp_path))
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "one").write_bytes(bytes(1200))

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
