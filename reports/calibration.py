"""The page of a calibration: how far its profile is from what was measured, as one HTML file that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from .calibration_agreement import AgreementInfo, agreement_info, draw_agreement, draw_residuals
from .calibration_coverage import (
    Answers,
    Coverage,
    answers_info,
    coverage_info,
    draw_answers,
    draw_coverage,
)
from .calibration_roofline import RooflineInfo, draw_roofline, roofline_info
from .calibration_table import (
    CalibrationTable,
    OperationFigures,
    calibration_sentence,
    calibration_table,
    calibration_warnings,
    operation_figures,
)
from .facts import Fact, FactGroup, facts
from .log_axes import prefixed
from .palette import Look, looks
from .rendering import Figure, rendered, write_html
from .scales import COUNT, named_value

if TYPE_CHECKING:
    from ..workbench.calibration_points import CalibrationPoints, Source


class OperationSection(NamedTuple):
    """One operation's own figures; without agreement where none of its rows is judged."""

    operation: str
    key: str
    """Its anchor on the page; made from its place, because names are foreign text."""
    agreement: AgreementInfo | None
    rows_of: str
    """The operation whose rows these are, asked in another way; empty where they are its own."""


class CalibrationInfo(NamedTuple):
    """Everything the page shows, as plain data."""

    title: str
    sentence: str
    warnings: tuple[str, ...]
    is_published: bool
    figures: tuple[OperationFigures, ...]
    table: CalibrationTable
    sections: tuple[OperationSection, ...]
    coverage: tuple[Coverage, ...]
    answers: tuple[Answers, ...]
    roofline: RooflineInfo | None
    looks: dict[str, Look]
    """Of the operations in the roofline."""
    bounds: tuple[str, ...]
    """Empty: the legend of the other pages marks bounds."""
    inputs: tuple[FactGroup, ...]
    sources: tuple[Source, ...]

    def anchor(self, operation: str) -> str:
        return next(section.key for section in self.sections if section.operation == operation)


def calibration_report(source: str | Path | CalibrationPoints, path: str | Path) -> Path:
    """Write the page of a calibration's folder, or of `published_points`, to `path`; returns it.

    Raises `UsageError` for what is no calibration's folder, `InputFileError` on a damaged file in it, `RunError` where the
    page cannot be written.
    """
    if isinstance(source, (str, Path)):
        from ..workbench.calibration_points import calibration_points

        source = calibration_points(source)
    return write_html(calibration_html(calibration_info(source)), path)


def calibration_info(points: CalibrationPoints) -> CalibrationInfo:
    """Gathers the page. Raises `UsageError` where there is no operation."""
    if not points.operations:
        raise UsageError("the calibration has no operation, so there is nothing to report")
    figures = tuple(operation_figures(one, points.roof) for one in points.operations)
    coverage, roofline = coverage_info(points.operations), roofline_info(points.operations, points.roof)
    what = "Check of published measurements" if points.is_published else "Calibration"
    return CalibrationInfo(
        title=f"{what}: {points.system}",
        sentence=calibration_sentence(points, figures),
        warnings=calibration_warnings(points, figures, coverage),
        is_published=points.is_published,
        figures=figures,
        table=calibration_table(figures),
        sections=tuple(
            OperationSection(one.operation, f"operation-{place}", agreement_info(one), one.rows_of)
            for place, one in enumerate(points.operations)
        ),
        coverage=coverage,
        answers=answers_info(points.operations),
        roofline=roofline,
        looks=looks([cloud.operation for cloud in roofline.clouds] if roofline else [], ()),
        bounds=(),
        inputs=_inputs(points),
        sources=points.sources,
    )


def _inputs(points: CalibrationPoints) -> tuple[FactGroup, ...]:
    groups = [FactGroup("Environment", facts(points.environment) or (Fact("environment", "unknown"),))]
    if points.roof is None:
        return (*groups, FactGroup("Roof", (Fact("roof", "unknown: not kept in this folder"),)))
    kind = "datasheet" if points.is_published else "measured"
    rates = [Fact("memory", named_value("_bytes_per_s", points.roof.bandwidth), kind, points.roof_source)]
    rates += [
        Fact(name, prefixed("FLOP/s")(rate), kind, points.roof_source)
        for name, rate in points.roof.peaks.items()
    ]
    return (*groups, FactGroup("Roof", tuple(rates)))


def calibration_figures(info: CalibrationInfo) -> dict[str, tuple[Figure, ...]]:
    """The figures of each section: "overview", "roofline", and each operation by its anchor."""
    sections: dict[str, tuple[Figure, ...]] = {"overview": (), "roofline": ()}
    if info.coverage:
        sections["overview"] += (
            Figure("coverage", "Coverage of the 90 % band", (), (draw_coverage(info.coverage),)),
        )
    if info.answers:
        title = "How the held-out rows were answered"
        sections["overview"] += (Figure("answers", title, (), (draw_answers(info.answers),)),)
    if info.roofline is not None:
        sections["roofline"] = (Figure("roofline-0", "", (), (draw_roofline(info.roofline, info.looks),)),)
    for section in info.sections:
        if section.agreement is not None:
            sections[section.key] = (
                Figure(f"{section.key}-agreement", "Predicted against measured", (), (draw_agreement(section.agreement),)),
                Figure(f"{section.key}-residuals", "Error by size", (), (draw_residuals(section.agreement),)),
            )  # fmt: skip
        else:
            sections[section.key] = ()
    return sections


def calibration_html(info: CalibrationInfo) -> str:
    """The page as text: Plotly embedded once, figures and data as escaped JSON, everything else autoescaped."""
    data: dict[str, Any] = {
        "title": info.title,
        "operations": [{k: v for k, v in one._asdict().items() if v is not None} for one in info.figures],
        "sources": [
            {name: getattr(one, name) for name in ("what", "file", "sha256", "source", "licence")}
            for one in info.sources
        ],
    }
    return rendered("calibration.html.j2", calibration_figures(info), data, info=info, count=COUNT.show)
