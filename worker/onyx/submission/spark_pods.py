"""What an OnyxCluster gives Spark: asked before a job is submitted.

Workers run Spark if their cluster says so. The rest is about executors that are pods, and whether
they see the files of a job.

Spark reads what workers have written to files, and writes what workers publish. Beside a worker it
sees the disk of that worker. The pods of an OnyxCluster share one volume, and object stores, whose
credentials they all have. A folder elsewhere is another one in each pod: a stage would find no
parts when all input has been processed, or a result would stay in an executor. Whoever knows the
job and the cluster asks here; all that is wrong is reported at once, with its key.

Inputs of a job that Spark runs as a whole are not looked at: executors have the image of the
workers, and it may have the files. Rejected: a file that a worker writes and an executor looks for,
as is done for state. Spark would have to start before a job may be refused.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator

import msgspec

from onyx.errors import Problem
from onyx.model.cluster import Cluster
from onyx.model.job import CatalogEntry, Job
from onyx.model.keys.kubernetes import amount_of
from onyx.model.plugins import keeps_parts, makes_one_result, runs_spark
from onyx.model.report import at
from onyx.model.workflow import is_unbounded
from onyx.replica.spec_of_job import needs_spark
from onyx.settings import from_environment
from onyx.spark.stage.options import same_result
from onyx.state.location import DEFAULT_FOLDER
from onyx.storage.opening import absolute, is_remote

WITH_JVM = "1536Mi"
"""Memory of Spark beside a worker: a heap of 1 GiB (`spark.driver.memory` unless a job says
otherwise), 300 MiB of the JVM beside it, and two Python processes."""
_SPARK = "ONYX_SPARK"
_BESIDE = "or a master local[*], which runs beside the worker"
_VARIABLES = ("ONYX_DATA_DIR", "ONYX_STATE_URL", "ONYX_SPARK_MASTER")


def workers_run_spark(cluster: Cluster) -> bool:
    """Whether Spark may run beside the workers of a cluster, as far as its spec says."""
    given = [each.value for each in cluster.env if each.name == _SPARK and not each.value_from]
    given += [cluster.settings[_SPARK]] if _SPARK in cluster.settings else []
    if given:
        return from_environment({_SPARK: given[0]}).spark
    if cluster.spark_memory is None:
        return cluster.spark is not None
    return amount_of(cluster.spark_memory) > 0


def without_spark(job: Job, cluster: Cluster) -> Problem | None:
    """Why the workers of a cluster could not run a job that needs Spark; None if they could."""
    needed_by = needs_spark(job)
    if needed_by is None or workers_run_spark(cluster):
        return None
    return Problem(
        needed_by,
        f"needs Spark, and OnyxCluster {cluster.name} runs none",
        f"set its spec.sparkMemory, {WITH_JVM} for a JVM beside each worker, or spec.spark; if it "
        "names an image, that has to have Spark: onyx-worker:VERSION-spark, or one built FROM it",
    )


class SparkPods(msgspec.Struct, frozen=True):
    """What an OnyxCluster whose executors are pods says of the files that they see."""

    cluster: str
    """Its name."""
    folder: str | None
    """Where the volume is mounted that all pods share; None: there is none."""
    data_dir: str
    """Folder in which relative paths of jobs start; empty: that of each process."""
    state: str | None
    """Folder or URL of the state of jobs; None: not known."""

    def is_own(self, master: object) -> bool:
        """Whether a task with this master, None if it names none, runs in these pods."""
        return master is None or str(master).startswith(f"sc://{self.cluster}-spark.")

    def sees(self, path: str) -> bool:
        """Whether every pod sees the same under a path of a job."""
        if is_remote(path):
            return True
        mounted = os.path.normpath(self.mounted(path))
        return self.folder is not None and f"{mounted}/".startswith(f"{self.folder.rstrip('/')}/")

    def mounted(self, path: str) -> str:
        """A path of a job as workers take it."""
        return absolute(path, self.data_dir)

    @property
    def remedy(self) -> str:
        """What to set."""
        if self.folder is None:
            return (
                "set spec.data of the cluster, and take a path below its mountPath; or s3://; "
                f"{_BESIDE}"
            )
        return f"take a path below {self.folder}, which all pods share; or s3://; {_BESIDE}"


def spark_pods(cluster: Cluster) -> SparkPods | None:
    """What a cluster says of its executors; None if they are no pods of its own, or if variables
    come from where only a pod can look."""
    known = {name: cluster.settings.get(name) for name in _VARIABLES}
    for variable in cluster.env:
        if variable.name in known:
            known[variable.name] = variable.value
            if variable.value_from:
                return None
    if cluster.spark is None:
        return None
    folder = None if cluster.data is None else cluster.data.mount_path
    data_dir = known["ONYX_DATA_DIR"] or folder or ""
    state = known["ONYX_STATE_URL"] or (None if cluster.env_from else DEFAULT_FOLDER)
    found = SparkPods(cluster.name, folder, data_dir, state)
    return found if found.is_own(known["ONYX_SPARK_MASTER"]) else None


def unseen(job: Job, pods: SparkPods) -> tuple[Problem, ...]:
    """Everything of a job that Spark would not find in these pods; empty when all is right."""
    return (*_states(job, pods), *_tasks(job, pods))


def _states(job: Job, pods: SparkPods) -> Iterator[Problem]:
    """States whose files executors read and write: windows by Spark, and all of micro-batches."""
    whole = job.engine == "spark"
    if (whole and not is_unbounded(job)) or pods.state is None or not pods.is_own(_master(job)):
        return
    if pods.sees(pods.state):
        return
    for index, window in enumerate(job.windows):
        if not whole and window.engine != "spark":
            continue
        path = at("spec.windows", index)
        what = f"window {window.id} of task {window.task} has"
        yield _unseen_state(path if whole else at(path, "engine"), what, pods, pods.state, whole)
    for index, entry in enumerate(job.catalog if whole else ()):
        if entry.is_stateful:
            path = at("spec.catalog", index)
            yield _unseen_state(path, f"task {entry.name} has", pods, pods.state, whole)


def _unseen_state(path: str, has: str, pods: SparkPods, state: str, whole: bool) -> Problem:
    what = "its state between micro-batches" if whole else "its files"
    return Problem(
        path,
        f"{has} {what} in {pods.mounted(state)} (ONYX_STATE_URL), which the executors of "
        f"OnyxCluster {pods.cluster} do not see",
        "set spec.data of the cluster, and no other ONYX_STATE_URL than a folder there or "
        "s3://bucket/prefix; or spec.spark.master: local[*], which runs beside the worker",
    )


def _tasks(job: Job, pods: SparkPods) -> Iterator[Problem]:
    for index, entry in enumerate(job.catalog):
        path = entry.options.get("path")
        if not isinstance(path, str) or not _is_of_spark(job, entry, pods) or pods.sees(path):
            continue
        yield Problem(
            at(at(at("spec.catalog", index), "options"), "path"),
            f"of task {entry.name} is {pods.mounted(path)}, which the executors of OnyxCluster "
            f"{pods.cluster} do not see",
            pods.remedy,
        )


def _is_of_spark(job: Job, entry: CatalogEntry, pods: SparkPods) -> bool:
    """Whether executors read or write at the `path` of a task."""
    if job.engine == "spark":
        written = keeps_parts(entry.type, entry.plugin)
        return (written or entry.stage is not None) and pods.is_own(_master(job))
    of_stage = runs_spark(entry.type, entry.plugin) or entry.stage is not None
    own = _stage(job, entry).options.get("master")
    return of_stage and pods.is_own(_master(job) if own is None else own)


def _stage(job: Job, entry: CatalogEntry) -> CatalogEntry:
    """The task with the stage that reads what this one writes: itself, unless it is a frame."""
    outputs = [each for each in job.catalog if makes_one_result(each.type, each.plugin)]
    if entry not in outputs or "stage" in entry.options:
        return entry
    path = same_result(entry.options)
    same = (each for each in outputs if same_result(each.options) == path)
    return next((each for each in same if "stage" in each.options), entry)


def _master(job: Job) -> str | None:
    return None if job.spark is None else job.spark.master
