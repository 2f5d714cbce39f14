"""The page of GPT-2 that the site shows: `npu show --html`, coloured by the time that each node takes.

`python tools/site_pictures.py PAGE` writes it; with ``--pictures``, also ``docs/pictures/gpt2-light.png`` and
``gpt2-dark.png``, which headless Chromium takes of it.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModel

from npu_ir import extract_ir, to_html
from npu_runtime import IRExecutor, profile

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SELECTED = "overlay=time&node=layer_norm_1"
WIDTH, HEIGHT = 1180, 660
HTML = '<html lang="en">'


def gpt2_page(**sizes: int) -> str:
    """Return the page of GPT-2 with 128 tokens; its weights are random, its times those of this machine.

    Args:
        sizes: Of the configuration, if not those of GPT-2.
    """
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model("gpt2", use_cache=False, **sizes)).eval()
    tokens = torch.randint(model.config.vocab_size, (1, 128))
    graph = extract_ir(model, (tokens,), name="gpt2")
    executor = IRExecutor(graph, model.state_dict(), passes=())
    return to_html(graph, overlays=[profile(executor, (tokens,), repeat=5).to_dict()])


def take_picture(page: Path, theme: str) -> None:
    """Write the picture of the page in a theme, light or dark."""
    themed = page.with_name(f"{page.stem}-{theme}.html")
    html = page.read_text(encoding="utf-8").replace(HTML, f'{HTML[:-1]} data-theme="{theme}">', 1)
    themed.write_text(html, encoding="utf-8")
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--virtual-time-budget=4000",
    )
    size, target = f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={PICTURES / f'gpt2-{theme}.png'}"
    subprocess.run(["chromium", *options, size, target, f"{themed.as_uri()}#{SELECTED}"], check=True)
    themed.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path, help="the HTML file to write")
    parser.add_argument("--pictures", action="store_true", help="take the pictures of the site, too")
    arguments = parser.parse_args()
    page = arguments.page.resolve()
    page.write_text(gpt2_page(), encoding="utf-8")
    for theme in ("light", "dark") if arguments.pictures else ():
        take_picture(page, theme)


if __name__ == "__main__":
    main()
