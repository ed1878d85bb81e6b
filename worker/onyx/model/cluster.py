"""A cluster as a value: the pool of workers that the operator keeps running on Kubernetes.

Frozen, typed and valid by construction, like a job: `parse_cluster` is the way to make one. Every
field is a key of the manifest; parsing, the CRD and the reference page are derived from it. What
Kubernetes itself defines (a pod's spec, where a variable's value comes from) is taken as it is and
not modelled again: that is what makes the CRDs of other operators 600 KB large. Rejected: secrets
as plain settings. They come from Secrets by `env` and `envFrom`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import field

from onyx.model import names
from onyx.model.job.types import PEERS_MAX, PRIORITY_MAX
from onyx.model.keys.compound import ListOf, MapOf
from onyx.model.keys.fields import section_of
from onyx.model.keys.key import EMPTY, NOT_A_KEY, Key
from onyx.model.keys.kinds import Integer, PathName, Text
from onyx.model.keys.kubernetes import SECONDS, Matching, amount_of, count_or_percent, quantity
from onyx.model.manifest import ApiVersion

WORKERS_MAX = 1_000
PEERS_PER_WORKER_MAX = 256
PROCESSES_PER_WORKER_MAX = 64
PEERS_PER_PROCESS = 4
"""Unless a cluster says how many."""
LIST_ENTRIES_MAX = 128
EXECUTORS_MAX = 1_000
VALUE_CHARACTERS_MAX = 32_768

_HOST = r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?):[0-9]{1,5}"
_DNS_NAME = r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?"
_OBJECT = Matching("the name of a Kubernetes object", _DNS_NAME, "lower case letters, digits, - .")
_VARIABLE = Matching("the name of a variable", r"[A-Za-z_][A-Za-z0-9_.-]*")
_VALUE = Text(empty=True, characters_max=VALUE_CHARACTERS_MAX)
_QUALIFIED = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = Matching("a label's key", _QUALIFIED, characters_max=317)
_ANNOTATION_KEY = Matching("an annotation's key", _QUALIFIED, characters_max=317)
_RESOURCE = Matching("the name of a resource", _QUALIFIED, characters_max=317)
_LABEL = Matching("a label", r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?", characters_max=63)
_SPARK_KEY = Matching("a setting of Spark", r"spark\.[A-Za-z0-9_.-]+")
_HEAP = Matching("a size of Java's heap", "[1-9][0-9]{0,6}[mg]", "such as 512m or 2g")
_ANNOTATIONS = MapOf(_ANNOTATION_KEY, _VALUE, LIST_ENTRIES_MAX)
_AMOUNTS = MapOf(_RESOURCE, quantity(), entries_max=32)


class Zookeeper(msgspec.Struct, frozen=True):
    """The ZooKeeper that holds the log."""

    address: Annotated[
        str | None,
        Matching(
            "host:port, several separated by commas",
            f"{_HOST}(,{_HOST})*",
            "such as zookeeper:2181",
            2048,
        ),
    ] = None
    """Where clients connect. By default the address that the operator was installed with; without
    either, no workers are created and a condition says so."""
    auth_secret: Annotated[str | None, _OBJECT] = None
    """Secret with the user and password (digest scheme) of the operator, for workers that are to
    have these. By default the operator draws an account for this cluster alone."""


class CodeSource(msgspec.Struct, frozen=True):
    """Python files from a ConfigMap, to try jobs without building an image."""

    config_map: Annotated[str, _OBJECT]
    """ConfigMap whose keys are files on the module path: flights.py is the module flights,
    flights.tasks.py the module flights.tasks."""


class TlsSource(msgspec.Struct, frozen=True):
    """Certificates for connections between workers."""

    secret_name: Annotated[str, _OBJECT]
    """Secret with ca.crt, tls.crt and tls.key, as cert-manager makes it."""
    zookeeper: bool = False
    """Use TLS for connections to ZooKeeper too."""


class DataVolume(msgspec.Struct, frozen=True):
    """A volume that all workers share, for file inputs, outputs and state."""

    claim_name: Annotated[str, _OBJECT]
    """PersistentVolumeClaim; with several workers it must be ReadWriteMany."""
    mount_path: Annotated[
        str,
        Matching("an absolute path", "(/[A-Za-z0-9._-]+)+"),
        Key(restriction="Not /tmp, and not below /etc/onyx or /opt/onyx, which the operator uses."),
    ] = "/data"
    """Where workers mount it; relative paths in jobs start here."""


class EnvVar(msgspec.Struct, frozen=True):
    """A variable of the worker's container."""

    name: Annotated[str, _VARIABLE]
    """Name of the variable."""
    value: Annotated[str, _VALUE] = ""
    """Value of the variable."""
    value_from: Annotated[Mapping[str, Any], Key(restriction="Not together with value.")] = field(
        default_factory=lambda: EMPTY
    )
    """Source of the value, as in a pod: secretKeyRef, configMapKeyRef, ..."""


class EnvSource(msgspec.Struct, frozen=True):
    """A ConfigMap or Secret whose keys become variables."""

    prefix: Annotated[str, Text(empty=True, characters_max=253)] = ""
    """Prefix of the names."""
    config_map_ref: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """name, and optional, of a ConfigMap."""
    secret_ref: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """name, and optional, of a Secret."""


class PullSecret(msgspec.Struct, frozen=True):
    """A Secret with the credentials of a registry."""

    name: Annotated[str, _OBJECT]
    """Name of the Secret."""


class Resources(msgspec.Struct, frozen=True):
    """Processor and memory of the worker's container."""

    requests: Annotated[Mapping[str, int | str], _AMOUNTS] = field(default_factory=lambda: EMPTY)
    """Amounts that the scheduler reserves."""
    limits: Annotated[Mapping[str, int | str], _AMOUNTS] = field(default_factory=lambda: EMPTY)
    """Most that the container may use."""


class PodMetadata(msgspec.Struct, frozen=True):
    """Labels and annotations of the pods."""

    labels: Annotated[Mapping[str, str], MapOf(_LABEL_KEY, _LABEL, LIST_ENTRIES_MAX)] = field(
        default_factory=lambda: EMPTY
    )
    """Labels in addition to the operator's."""
    annotations: Annotated[Mapping[str, str], _ANNOTATIONS] = field(default_factory=lambda: EMPTY)
    """Annotations in addition to the operator's."""


class PodTemplate(msgspec.Struct, frozen=True):
    """What is merged into the pods: lists of containers, volumes, variables, mounts and the like by
    name, other lists as a whole; null removes a key."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations."""
    spec: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Spec of a pod, as Kubernetes takes it: nodeSelector, tolerations, affinity,
    priorityClassName, ... Our container is called worker, or spark in pods of Spark. Fields beyond
    the Pod Security standard restricted need a right that the operator was given."""


class SparkExecutors(msgspec.Struct, frozen=True):
    """Pods that Spark runs its tasks in."""

    instances: Annotated[int, Integer(1, EXECUTORS_MAX, "executors")] = 2
    """Number of executors, which stay while the server runs."""
    cores: Annotated[int, Integer(1, 256, "cores")] = 1
    """Tasks that each runs at once, and CPUs that each requests."""
    memory: Annotated[str, _HEAP] = "1g"
    """Heap of each; Spark requests some more for Python and buffers
    (spark.executor.memoryOverheadFactor)."""
    pod_template: PodTemplate = PodTemplate()
    """What is merged into the pods of executors; Spark itself sets names, amounts and the restart
    policy."""


class SparkServer(msgspec.Struct, frozen=True):
    """A Spark Connect server whose executors are pods. It runs the image, the code and the data
    volume of the workers; tasks of jobs that name no master use it."""

    memory: Annotated[str, _HEAP] = "1g"
    """Heap of the server."""
    resources: Resources = Resources()
    """CPU and memory of the server's container; more than the heap."""
    executors: SparkExecutors = SparkExecutors()
    """The executors."""
    pod_template: PodTemplate = PodTemplate()
    """What is merged into the pod of the server."""
    conf: Annotated[
        Mapping[str, str],
        MapOf(_SPARK_KEY, _VALUE, LIST_ENTRIES_MAX),
        Key(restriction="None that another key sets or the operator needs."),
    ] = field(default_factory=lambda: EMPTY)
    """Settings of Spark: spark.sql.shuffle.partitions, ..."""


class HttpRequests(msgspec.Struct, frozen=True):
    """Requests of clients over HTTP, for inputs with plugin http, and a Service in front of the
    workers."""

    tls_secret_name: Annotated[str | None, _OBJECT] = None
    """Secret with tls.crt and tls.key, which workers show to clients. Without it they speak plain
    HTTP, for a gateway or a mesh in front."""
    service_annotations: Annotated[Mapping[str, str], _ANNOTATIONS] = field(
        default_factory=lambda: EMPTY
    )
    """Annotations of the Service."""


class GrpcRequests(msgspec.Struct, frozen=True):
    """A Service through which clients of inputs with plugin requests reach the workers."""

    service_annotations: Annotated[Mapping[str, str], _ANNOTATIONS] = field(
        default_factory=lambda: EMPTY
    )
    """Annotations of the Service."""


class DisruptionBudget(msgspec.Struct, frozen=True):
    """How many workers a drain of nodes may evict at once."""

    enabled: bool = True
    """Create a PodDisruptionBudget."""
    max_unavailable: Annotated[int | str, count_or_percent()] = 1
    """Workers that may be unavailable at the same time."""


class NetworkPolicy(msgspec.Struct, frozen=True):
    """Who may reach the workers, and where they may go."""

    enabled: bool = True
    """Create a NetworkPolicy: only workers, and clients that it lists, reach the workers'
    transport; metrics are open."""
    clients_from: Annotated[
        tuple[Mapping[str, Any], ...] | None,
        Key(restriction="Only with http or grpc, and not with enabled: false."),
    ] = None
    """Where clients may come from with requests, over HTTP and gRPC: the from of a NetworkPolicy.
    By default from everywhere over HTTP, and from nowhere over gRPC."""
    egress: Annotated[
        tuple[Mapping[str, Any], ...] | None, Key(restriction="Not with enabled: false.")
    ] = None
    """Where workers, Spark server and executors may go besides each other, DNS and ZooKeeper: the
    egress of a NetworkPolicy. By default everywhere, with [] nowhere else. With spark it has to
    list the API server."""


class JobQuotas(msgspec.Struct, frozen=True):
    """Most that one job may have. A job that asks for more is not submitted, and its OnyxJob says
    which key to lower; one that runs keeps what it had when it was submitted."""

    peers_per_job: Annotated[int | None, Integer(1, PEERS_MAX, "peers")] = None
    """Peers; by default all that the workers have. A job that could use more gets no more."""
    priority: Annotated[int, Integer(0, PRIORITY_MAX)] = PRIORITY_MAX
    """Highest priority, above which no job of the cluster may be."""


class ServiceAccount(msgspec.Struct, frozen=True):
    """The ServiceAccount of the workers; they need no permissions in Kubernetes."""

    create: bool = True
    """Create the ServiceAccount."""
    name: Annotated[str | None, _OBJECT] = None
    """Name of the ServiceAccount. By default the name of the StatefulSet if it is created, else
    default."""
    annotations: Annotated[Mapping[str, str], _ANNOTATIONS] = field(default_factory=lambda: EMPTY)
    """For identities of cloud providers."""


class Cluster(msgspec.Struct, frozen=True):
    """A pool of workers that run jobs."""

    name: Annotated[str, NOT_A_KEY]
    """Stands under `metadata` in the manifest."""
    tenancy_id: Annotated[
        str | None,
        PathName("the name of a tenancy"),
        Key(restriction="Cannot be changed: each tenancy has a log of its own."),
    ] = None
    """Separates clusters that share a ZooKeeper; by default namespace and name, joined by a dot."""
    job_scheduler: Annotated[
        Literal["balanced", "greedy", "percentage"],
        Key(restriction="Cannot be changed: the log of the tenancy holds it."),
    ] = "balanced"
    """How peers are distributed over jobs."""
    quotas: JobQuotas = JobQuotas()
    """Most that one job may have."""
    replicas: Annotated[int, Integer(0, WORKERS_MAX, "workers")] = 2
    """Number of worker pods."""
    peers_per_worker: Annotated[int | None, Integer(1, PEERS_PER_WORKER_MAX, "peers")] = None
    """Virtual peers of each worker, dealt over its processes. Default: 4. A worker with several
    processes has 4 for each by default."""
    processes_per_worker: Annotated[
        int | None,
        Integer(1, PROCESSES_PER_WORKER_MAX, "processes"),
        Key(restriction="Not more than peersPerWorker."),
    ] = None
    """Processes of each worker: Python uses one core in each. By default the whole cores of
    resources.requests.cpu, at least 1."""
    image: Annotated[
        str | None, Matching("an image", "[A-Za-z0-9][A-Za-z0-9._:/@-]*", characters_max=512)
    ] = None
    """Image of the workers; by default the one that the operator was installed with."""
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """When the image is pulled; by default Kubernetes decides by its tag."""
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Key(items_max=16, map_key="name")] = ()
    """Credentials for the registry."""
    modules: Annotated[
        tuple[str, ...],
        ListOf(Matching("a Python module", names.MODULE, "package.module, without a colon")),
    ] = ()
    """Modules and packages whose functions jobs may name."""
    code: CodeSource | None = None
    """Python files from a ConfigMap."""
    zookeeper: Zookeeper = Zookeeper()
    """The ZooKeeper of the log."""
    tls: TlsSource | None = None
    """Certificates of the workers."""
    http: HttpRequests | None = None
    """Requests over HTTP; by default workers take none. http: {} is enough."""
    grpc: Annotated[
        GrpcRequests | None, Key(restriction="Needs networkPolicy.clientsFrom, unless disabled.")
    ] = None
    """A Service for requests over gRPC; by default there is none. grpc: {} is enough."""
    data: DataVolume | None = None
    """A volume that the workers share."""
    settings: Annotated[
        Mapping[str, str],
        MapOf(_VARIABLE, Text(empty=True), LIST_ENTRIES_MAX),
        Key(restriction="Only variables of the settings page that no other key sets."),
    ] = field(default_factory=lambda: EMPTY)
    """Settings of the workers as ONYX_* variables; no secrets."""
    env: Annotated[
        tuple[EnvVar, ...],
        Key(items_max=LIST_ENTRIES_MAX, map_key="name", restriction="None that another key sets."),
    ] = ()
    """Further variables of the worker's container."""
    env_from: Annotated[tuple[EnvSource, ...], Key(items_max=32)] = ()
    """ConfigMaps and Secrets whose keys become further variables."""
    resources: Resources = Resources()
    """CPU and memory of a worker, without Spark."""
    spark_memory: Annotated[
        int | str | None,
        quantity(),
        Key(restriction="Not 0 together with spark."),
    ] = None
    """Memory of Spark beside a worker, which is added to the memory in resources. By default the
    workers run no Spark, as with 0; if the cluster has a Spark server, which has the JVM, 512Mi.
    1536Mi is enough for a JVM with a heap of 1 GiB and for Python. The image must have Spark."""
    pod_template: PodTemplate = PodTemplate()
    """What is merged into the worker pods."""
    pod_disruption_budget: DisruptionBudget = DisruptionBudget()
    """How many workers a drain of nodes may evict at once."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may reach the workers, and where they may go."""
    service_account: ServiceAccount = ServiceAccount()
    """The ServiceAccount of the workers."""
    spark: SparkServer | None = None
    """A Spark Connect server with executors of its own. By default there is none, and Spark runs
    beside the workers, if at all."""
    termination_grace_period_seconds: Annotated[int, SECONDS] = 60
    """Time that a worker has to leave the cluster before it is killed."""

    @property
    def processes(self) -> int:
        """How many processes each worker has."""
        if self.processes_per_worker is not None:
            return self.processes_per_worker
        cores = int(amount_of(self.resources.requests.get("cpu", 0)))
        # A worker that is given few peers does not have a process without one.
        most = min(PROCESSES_PER_WORKER_MAX, self.peers_per_worker or PROCESSES_PER_WORKER_MAX)
        return max(1, min(cores, most))

    @property
    def peers(self) -> int:
        """How many peers each worker has, in all its processes."""
        if self.peers_per_worker is not None:
            return self.peers_per_worker
        return PEERS_PER_PROCESS * self.processes


SET_BY_OPERATOR: Mapping[str, str] = MappingProxyType(
    {
        "ONYX_TENANCY_ID": "tenancyId",
        "ONYX_TENANCY_OWNER": "",
        "ONYX_JOB_SCHEDULER": "jobScheduler",
        "ONYX_MODULES": "modules",
        "ONYX_PEERS": "peersPerWorker",
        "ONYX_PROCESSES": "processesPerWorker",
        "ONYX_ZOOKEEPER_ADDRESS": "zookeeper.address",
        "ONYX_HTTP_BIND_HOST": "http",
        "ONYX_HTTP_PORT": "http",
        "ONYX_TRANSPORT_BIND_HOST": "",
        "ONYX_TRANSPORT_ADVERTISE_HOST": "",
        "ONYX_TRANSPORT_PORT": "",
        "ONYX_TELEMETRY_METRICS_HOST": "",
        "ONYX_TELEMETRY_METRICS_PORT": "",
    }
)
"""Variables of a worker that the operator sets, with the key of the spec that they come from."""
SPARK_SET_BY_OPERATOR: Mapping[str, str] = MappingProxyType(
    {
        "spark.app.name": "",
        "spark.blockManager.port": "",
        "spark.connect.authenticate.token": "",
        "spark.connect.grpc.binding.address": "",
        "spark.connect.grpc.binding.port": "",
        "spark.driver.bindAddress": "",
        "spark.driver.host": "",
        "spark.driver.memory": "memory",
        "spark.driver.port": "",
        "spark.executor.cores": "executors.cores",
        "spark.executor.instances": "executors.instances",
        "spark.executor.memory": "executors.memory",
        "spark.kubernetes.authenticate.executor.serviceAccountName": "",
        "spark.kubernetes.container.image": "",
        "spark.kubernetes.container.image.pullPolicy": "",
        "spark.kubernetes.driver.pod.name": "",
        "spark.kubernetes.executor.podNamePrefix": "",
        "spark.kubernetes.executor.podTemplateContainerName": "",
        "spark.kubernetes.executor.podTemplateFile": "",
        "spark.kubernetes.namespace": "",
        "spark.master": "",
        "spark.ui.port": "",
    }
)
"""Settings of a Spark server that the operator sets, with the key of `spec.spark` for some."""


CLUSTER = section_of(Cluster)


class _ClusterManifest(msgspec.Struct, frozen=True):
    api_version: ApiVersion
    kind: Literal["OnyxCluster"]
    metadata: Mapping[str, Any]
    spec: Cluster
    status: Mapping[str, Any] = field(default_factory=lambda: EMPTY)
    """Written by the operator; ignored here."""


CLUSTER_MANIFEST = section_of(_ClusterManifest, "manifest")
