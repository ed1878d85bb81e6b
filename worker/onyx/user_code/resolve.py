"""Names of functions in a job, `package.module:name`, to the functions themselves.

A job is data that others may write, so a name must never reach more than what the worker's owner
offered. The owner lists modules; a name resolves only inside a listed module, or inside a listed
package, and only to a plain function or a processor (`onyx.processors`) defined there. A prefix
check alone was rejected: it lets `myapp.fns:os.system` and whatever a module has imported through.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from onyx.errors import NameNotRegistered, SettingsError, describe
from onyx.model.names import is_function
from onyx.model.report import nearest
from onyx.processors import Processor

Function = Callable[..., Any]
_IMPORTING: ContextVar[bool] = ContextVar("importing", default=False)


def is_importing() -> bool:
    """Whether this thread imports a module for a job, so that the module's own code runs."""
    return _IMPORTING.get()


class Resolver:
    """Functions of the modules that this process was started with."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Import `modules`, so that a missing or broken one is reported before any job runs.

        Raises:
            SettingsError: a module cannot be imported.
        """
        self._listed = {name: _import_listed(name) for name in modules}
        self._found: dict[str, Function] = {}

    def resolve(self, name: str) -> Function:
        """The function called `name`.

        Raises:
            NameNotRegistered: it is not a function defined in a listed module; the message says
                why and what to do.
        """
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._look_up(name)
        return found

    def _look_up(self, name: str) -> Function:
        if not is_function(name):
            raise NameNotRegistered(
                f"{name[:200]!r} is not a name of a function: write package.module:name, "
                "where name has no dot and no leading underscore"
            )
        module_name, _, function_name = name.partition(":")
        function = vars(self._module(name, module_name)).get(function_name)
        if function is None:
            raise NameNotRegistered(f"{name}: {self._missing(module_name, function_name)}")
        refusal = _refusal(function, module_name, function_name)
        if refusal:
            raise NameNotRegistered(f"{name}: {refusal}")
        found: Function = function
        return found

    def _module(self, name: str, module_name: str) -> ModuleType:
        if module_name in self._listed:
            return self._listed[module_name]
        if not self._inside_listed_package(module_name):
            listed = ", ".join(self._listed) or "none"
            raise NameNotRegistered(
                f"{name}: this worker offers no functions of {module_name} (listed modules: "
                f"{listed}); start it with --modules {module_name} or ONYX_MODULES, on Kubernetes "
                "with spec.modules of the OnyxCluster (cluster.modules of the chart)"
            )
        try:
            return _import(module_name)
        except BaseException as error:
            raise NameNotRegistered(
                f"{name}: {module_name} cannot be imported: {describe(error)}"
            ) from error

    def _inside_listed_package(self, module_name: str) -> bool:
        for listed, module in self._listed.items():
            if module_name.startswith(f"{listed}.") and hasattr(module, "__path__"):
                below = module_name.removeprefix(f"{listed}.").split(".")
                return not any(part.startswith("_") for part in below)
        return False

    def _missing(self, module_name: str, function_name: str) -> str:
        module = importlib.import_module(module_name)
        offered = [
            other
            for other, value in vars(module).items()
            if not other.startswith("_") and not _refusal(value, module_name, other)
        ]
        hint = nearest(function_name, offered)
        return f"{module_name} has no {function_name!r}" + (f"; {hint}" if hint else "")


def _import(name: str) -> ModuleType:
    before = _IMPORTING.set(True)
    try:
        return importlib.import_module(name)
    finally:
        _IMPORTING.reset(before)


def _import_listed(name: str) -> ModuleType:
    try:
        return _import(name)
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"modules: {name!r} cannot be imported: {describe(error)}; it must be on the "
            "worker's Python path (PYTHONPATH; on Kubernetes in its image or spec.code), or for "
            "`onyx run` beside the job file, and import without errors"
        ) from error


def _refusal(function: Any, module_name: str, function_name: str) -> str:
    """Why an attribute of a module is not a function that a job may name; empty when it is."""
    is_processor = inspect.isclass(function) and issubclass(function, Processor)
    if not (inspect.isfunction(function) or is_processor):
        return (
            f"it is a {type(function).__name__}, only a function (def) or a subclass of "
            "onyx.processors.Processor may be named"
        )
    if function.__module__ != module_name:
        return (
            f"it is defined in {function.__module__}, and only imported here; name it there "
            "or define a function that calls it"
        )
    if function.__qualname__ != function_name:
        return f"it is {function.__qualname__}; define it with def {function_name} in the module"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "it is async; Onyx calls plain functions"
    return ""
