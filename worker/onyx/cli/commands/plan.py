"""`onyx plan`: how Spark would run a job. Needs no server; a Spark only for Spark's own plans."""

from __future__ import annotations

from typing import Annotated, Literal

from onyx.base.on_demand import ModuleOnDemand
from onyx.cli.command_line import Option
from onyx.cli.job_file import FileArgument, read_job
from onyx.cli.options import EngineChoice, ModulesOption
from onyx.spark.compiler.compile import compile_job
from onyx.spark.compiler.plan import render

local_plans = ModuleOnDemand("onyx.cli.local_plans")
ExplainOption = Annotated[bool, Option("--explain", "Print Spark's physical plans.")]
EngineOption = Annotated[Literal["spark"] | None, Option("--engine", "What is to run the job.")]


def plan(
    file: FileArgument,
    engine: EngineOption = None,
    explain: ExplainOption = False,
    modules: ModulesOption = None,
) -> None:
    """Print how Spark would run a job: its stages, shuffles, windows and outputs.

    Everything that Spark cannot run is printed with its line and key path. With --explain, print
    Spark's physical plans of the stages, and of the windows by Spark or, with engine: spark in the
    file or as an option, of the whole job; a Spark starts for that on this machine.
    """
    if explain:
        for text in local_plans.explained_here(file, engine and EngineChoice(engine), modules):
            print(text)
        return
    job = read_job(file, engine=EngineChoice(engine or "spark"))
    print(render(compile_job(job), job))
