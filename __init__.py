"""Co-design workbench for mixture-of-experts inference.

Everything the command `workbench` does is one of the functions below:

    import codesign
    result = codesign.replay("trace.safetensors", model="olmoe-1b-7b", hardware="rtx-4090")
    result.table                           # pandas
    codesign.report(result, "report.html")

A name is imported when it is first used, so `import codesign` is quick and needs none of the libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import InputFileError, RunError, UsageError, WorkbenchError
    from .reports import report
    from .reports.calibration import calibration_report
    from .reports.explore import explore_report
    from .sim.catalog import hardware_names, load_hardware, load_model, model_names, profile_names
    from .sim.hardware import HardwareSpec
    from .sim.model import ModelSpec
    from .traces import ExpertTrace, permute_steps, read_trace, save_trace, synthesise, trace_info
    from .traces.bundled import bundled_trace_path
    from .traces.capture import capture
    from .workbench.calibrate import calibrate
    from .workbench.compare import best, pareto
    from .workbench.curve import curve
    from .workbench.explore import explore, explore_train
    from .workbench.export import export
    from .workbench.profile_check import profile_check
    from .workbench.profiles import calibrate_from_tables, compare_profiles, load_named_profile
    from .workbench.replay import ReplayResult, replay
    from .workbench.run_store import load_run
    from .workbench.scenario import Scenario, load_scenario, replay_scenario, write_first_scenario
    from .workbench.sweep import sweep
    from .workbench.validate import validate, validate_suite

_HOME = {
    "InputFileError": ".errors",
    "RunError": ".errors",
    "UsageError": ".errors",
    "WorkbenchError": ".errors",
    "report": ".reports",
    "calibration_report": ".reports.calibration",
    "explore_report": ".reports.explore",
    "hardware_names": ".sim.catalog",
    "load_hardware": ".sim.catalog",
    "load_model": ".sim.catalog",
    "model_names": ".sim.catalog",
    "HardwareSpec": ".sim.hardware",
    "ModelSpec": ".sim.model",
    "ExpertTrace": ".traces",
    "permute_steps": ".traces",
    "read_trace": ".traces",
    "save_trace": ".traces",
    "synthesise": ".traces",
    "trace_info": ".traces",
    "bundled_trace_path": ".traces.bundled",
    "capture": ".traces.capture",
    "profile_names": ".sim.catalog",
    "calibrate": ".workbench.calibrate",
    "profile_check": ".workbench.profile_check",
    "calibrate_from_tables": ".workbench.profiles",
    "compare_profiles": ".workbench.profiles",
    "load_named_profile": ".workbench.profiles",
    "sweep": ".workbench.sweep",
    "best": ".workbench.compare",
    "pareto": ".workbench.compare",
    "validate": ".workbench.validate",
    "validate_suite": ".workbench.validate",
    "export": ".workbench.export",
    "curve": ".workbench.curve",
    "explore": ".workbench.explore",
    "explore_train": ".workbench.explore",
    "ReplayResult": ".workbench.replay",
    "replay": ".workbench.replay",
    "load_run": ".workbench.run_store",
    "Scenario": ".workbench.scenario",
    "load_scenario": ".workbench.scenario",
    "replay_scenario": ".workbench.scenario",
    "write_first_scenario": ".workbench.scenario",
}

__all__ = [
    "ExpertTrace",
    "HardwareSpec",
    "InputFileError",
    "ModelSpec",
    "ReplayResult",
    "RunError",
    "Scenario",
    "UsageError",
    "WorkbenchError",
    "__version__",
    "best",
    "bundled_trace_path",
    "calibrate",
    "calibrate_from_tables",
    "calibration_report",
    "capture",
    "compare_profiles",
    "curve",
    "explore",
    "explore_report",
    "explore_train",
    "export",
    "hardware_names",
    "load_hardware",
    "load_model",
    "load_named_profile",
    "load_run",
    "load_scenario",
    "model_names",
    "pareto",
    "permute_steps",
    "profile_check",
    "profile_names",
    "read_trace",
    "replay",
    "replay_scenario",
    "report",
    "save_trace",
    "sweep",
    "synthesise",
    "trace_info",
    "validate",
    "validate_suite",
    "write_first_scenario",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
