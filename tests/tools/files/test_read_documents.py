"""The tool that reads images, notebooks and PDF files, against real ones."""

import importlib.util
import json
import struct
import zlib
from base64 import b64encode
from pathlib import Path

import pytest
from fewer_packages import run_without
from tool_runs import run_tool

from palimpsest.agent.tool import ToolOutput
from palimpsest.agent.workspace import Workspace
from palimpsest.coding.tools.read import MOST_BYTES, ImageFormat, image_format, read_tool
from palimpsest.core.items import Image


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty project that names a blob by its size."""
    return Workspace(tmp_path, keep=lambda data: f"blob-{len(data)}")


def read(workspace: Workspace, path: str, **arguments: object) -> ToolOutput:
    return run_tool(read_tool(), workspace, path=path, **arguments)


def png(width: int, height: int) -> bytes:
    """A whole PNG file of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def pdf(*pages: str) -> bytes:
    """A whole PDF file with one line of text on each page."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        contents = f"BT /F1 12 Tf 20 100 Td ({text}) Tj ET".encode()
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode(),
            f"<< /Length {len(contents)} >>\nstream\n".encode() + contents + b"\nendstream",
        ]
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\n"
    return data + f"{end}startxref\n{len(data)}\n%%EOF\n".encode()


def test_an_image_is_shown_by_its_content_and_not_by_its_name(workspace: Workspace) -> None:
    data = png(40, 30)
    (workspace.root / "p.jpg").write_bytes(data)
    assert read(workspace, "p.jpg") == ToolOutput(
        f"p.jpg: image/png, 40 x 30 pixels, {len(data)} bytes", (Image("image/png", f"blob-{len(data)}"),), paths=("p.jpg",)
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"12345", "p.png is no PNG, JPEG, GIF or WebP image, or a damaged one"),
        (b"\x89PNG\r\n\x1a\n", "p.png is no PNG, JPEG, GIF or WebP image, or a damaged one"),
        (png(8_001, 1), "p.png has 8,001 x 1 pixels; a side may have at most 8,000"),
        (png(1, 1) + bytes(5_000_000), "p.png has 5,000,067 bytes; images of at most 5,000,000 can be shown"),
    ],
)
def test_what_a_provider_would_refuse_is_an_error_and_no_image(workspace: Workspace, data: bytes, said: str) -> None:
    (workspace.root / "p.png").write_bytes(data)
    assert read(workspace, "p.png") == ToolOutput(said, error=True)


def test_the_size_of_each_format_is_read_from_its_header() -> None:
    jpeg = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + bytes(14) + b"\xff\xc2" + struct.pack(">HBHH", 11, 8, 30, 40)
    assert [image_format(data) for data in (jpeg, b"GIF89a" + struct.pack("<HH", 40, 30), webp(b"VP8X"), webp(b"VP8L"), b"BM")] == [
        ImageFormat("image/jpeg", 40, 30),
        ImageFormat("image/gif", 40, 30),
        ImageFormat("image/webp", 40, 30),
        ImageFormat("image/webp", 40, 30),
        None,
    ]


def webp(kind: bytes) -> bytes:
    if kind == b"VP8X":
        return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(8) + (39).to_bytes(3, "little") + (29).to_bytes(3, "little")
    return b"RIFF" + bytes(4) + b"WEBP" + kind + bytes(4) + b"\x2f" + (39 | 29 << 14).to_bytes(4, "little")


def test_a_notebook_is_read_by_cells_with_their_outputs(workspace: Workspace) -> None:
    image = png(2, 2)
    outputs = [
        {"output_type": "stream", "text": ["one\n", "two\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "2"}},
        {"output_type": "error", "ename": "E", "evalue": "x", "traceback": ["\x1b[31mE\x1b[0m: x"]},
        {"output_type": "display_data", "data": {"image/png": b64encode(image).decode(), "text/plain": "<Figure>"}},
        {"output_type": "display_data", "data": {"image/png": "AAAA"}},
    ]
    cells = [{"cell_type": "markdown", "source": ["# T\n", "x"]}, {"cell_type": "code", "source": "1 + 1", "outputs": outputs}]
    (workspace.root / "n.ipynb").write_text(json.dumps({"cells": cells}))
    second = (
        "[cell 2, code]\n1 + 1\n[output]\none\ntwo\n[output]\n2\n[output]\nE: x\n[output: an image, shown below]\n"
        "[output: an image that is no PNG, JPEG, GIF or WebP image, or a damaged one]"
    )
    shown = (Image("image/png", f"blob-{len(image)}"),)
    assert read(workspace, "n.ipynb") == ToolOutput(f"[cell 1, markdown]\n# T\nx\n{second}", shown, paths=("n.ipynb",))
    assert read(workspace, "n.ipynb", limit=1) == ToolOutput(
        "[cell 1, markdown]\n# T\nx\n[cells 1 to 1 of 2; go on with offset 2]", paths=("n.ipynb",)
    )
    assert read(workspace, "n.ipynb", offset=2).text == second
    assert read(workspace, "n.ipynb", offset=3) == ToolOutput("n.ipynb has 2 cells; cell 3 does not exist", error=True)


@pytest.mark.parametrize("text", ["{", "[]", '{"cells": [1]}', '{"cells": [{"source": "x"}]}', "[" * 100_000])
def test_a_damaged_notebook_is_an_error(workspace: Workspace, text: str) -> None:
    (workspace.root / "n.ipynb").write_text(text)
    output = read(workspace, "n.ipynb")
    assert (output.error, output.text.startswith("n.ipynb is not a notebook that can be read: ")) == (True, True)


def test_a_result_is_bounded_in_bytes_and_says_where_to_go_on(workspace: Workspace) -> None:
    (workspace.root / "wide.txt").write_text("ä" * 1_500 + "\n" + ("x" * 1_500 + "\n") * 199)
    output = read(workspace, "wide.txt")
    assert len(output.text.encode()) < MOST_BYTES + 200
    assert output.text.endswith("\n[lines 1 to 131 of 200; go on with offset 132]")
    assert read(workspace, "wide.txt", offset=132).text.startswith("   132\txxx")


needs_pypdf = pytest.mark.skipif(importlib.util.find_spec("pypdf") is None, reason="the extra pdf is not installed")


@needs_pypdf
def test_a_pdf_file_is_read_by_pages(workspace: Workspace) -> None:
    (workspace.root / "d.pdf").write_bytes(pdf("first words", "second words"))
    assert read(workspace, "d.pdf") == ToolOutput("[page 1]\nfirst words\n[page 2]\nsecond words", paths=("d.pdf",))
    assert read(workspace, "d.pdf", limit=1).text == "[page 1]\nfirst words\n[pages 1 to 1 of 2; go on with offset 2]"
    assert read(workspace, "d.pdf", offset=3) == ToolOutput("d.pdf has 2 pages; page 3 does not exist", error=True)


@needs_pypdf
def test_a_damaged_pdf_file_is_an_error(workspace: Workspace) -> None:
    (workspace.root / "d.pdf").write_bytes(b"%PDF-1.4\nnothing")
    output = read(workspace, "d.pdf")
    assert (output.error, output.text.startswith("d.pdf cannot be read: ")) == (True, True)


READS_IT = """\
import asyncio, sys
from pathlib import Path
from palimpsest.coding.tools.read import read_tool
from palimpsest.agent.workspace import Workspace
print(asyncio.run(read_tool().run('{"path": "d.pdf"}', Workspace(Path(sys.argv[1])))))
"""


def test_without_the_extra_a_pdf_file_is_an_error_that_names_it(workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> None:
    (workspace.root / "d.pdf").write_bytes(pdf("words"))
    printed = run_without(("pypdf",), READS_IT, str(workspace.root), folder=tmp_path_factory.mktemp("machine"))
    assert printed == [
        str(ToolOutput("PDF files need the package pypdf; install it with: pip install 'palimpsest-agent[pdf]'", error=True)),
    ]


def test_a_file_that_is_only_called_pdf_is_an_error(workspace: Workspace) -> None:
    (workspace.root / "d.pdf").write_text("words")
    assert read(workspace, "d.pdf") == ToolOutput("d.pdf is no PDF file", error=True)
