"""A page of shapes and words that is written as an SVG file.

The page brings its own background and follows the reader's light or dark scheme, so that it can be
read wherever it is shown. The file is the same for the same calls.
"""

from __future__ import annotations

from html import escape

FONT = 'system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif'
LIGHT = {
    "page": "#ffffff",
    "border": "#d1d9e0",
    "text": "#1f2328",
    "muted": "#59636e",
    "grid": "#e6e9ed",
    "ours": "#1f6feb",
    "ours_too": "#7fb0f5",
    "others": "#a3abb5",
    "limit": "#c2410c",
}
DARK = {
    "page": "#0d1117",
    "border": "#3d444d",
    "text": "#e6edf3",
    "muted": "#9aa4af",
    "grid": "#262c34",
    "ours": "#4493f8",
    "ours_too": "#2a5da8",
    "others": "#6e7681",
    "limit": "#fb923c",
}
FILLS = ("ours", "ours_too", "others", "limit")
STROKES = ("ours", "ours_too", "others", "limit", "grid", "muted", "text")


def _rules(colours: dict[str, str]) -> str:
    rules = [
        f".page {{ fill: {colours['page']}; stroke: {colours['border']} }}",
        f"text {{ fill: {colours['text']} }}",
        f"text.muted {{ fill: {colours['muted']} }}",
        f"text.limit {{ fill: {colours['limit']} }}",
        f"text.ours {{ fill: {colours['ours']} }}",
    ]
    rules += [f".fill_{name} {{ fill: {colours[name]} }}" for name in FILLS]
    rules += [f".line_{name} {{ stroke: {colours[name]} }}" for name in STROKES]
    return "\n".join(rules)


STYLE = f"""
text {{ font-family: {FONT}; font-size: 13px }}
.title {{ font-size: 17px; font-weight: 600 }}
.head {{ font-weight: 600 }}
.small {{ font-size: 12px }}
.line {{ fill: none; stroke-width: 2 }}
.thin {{ stroke-width: 1 }}
.dashed {{ stroke-dasharray: 5 4 }}
{_rules(LIGHT)}
@media (prefers-color-scheme: dark) {{
{_rules(DARK)}
}}
"""


class Page:
    """A page of a fixed width that grows downwards.

    Attributes:
        bottom: where the next shape may begin; each drawing function moves it.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.bottom = 0.0
        self._elements: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """Draw words with their base line at y."""
        attributes = f' class="{kind}"' if kind else ""
        if anchor != "start":
            attributes += f' text-anchor="{anchor}"'
        self._elements.append(f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{escape(words)}</text>')

    def bar(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """Draw a filled rectangle."""
        size = f'width="{max(width, 1.0):.1f}" height="{height:.1f}"'
        self._elements.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" {size} rx="1.5" class="fill_{fill}"/>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, kind: str = "") -> None:
        """Draw a line through points."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        classes = " ".join(filter(None, ("line", f"line_{colour}", kind)))
        self._elements.append(f'<polyline points="{places}" class="{classes}"/>')

    def dot(self, x: float, y: float, fill: str) -> None:
        """Draw a filled circle."""
        self._elements.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="fill_{fill}"/>')

    def to_svg(self, title: str, description: str) -> str:
        """Return the SVG file, with a title and a description for screen readers."""
        height = round(self.bottom)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" role="img">'
        )
        page = (
            f'<rect class="page" x="0.5" y="0.5" width="{self.width - 1}" '
            f'height="{height - 1}" rx="6"/>'
        )
        lines = [
            head,
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f"<style>{STYLE}</style>",
            page,
            *self._elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
