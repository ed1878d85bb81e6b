"""The information model of OnyxCluster: every key that a pool of workers may have, in one table.

Same mechanism as for the job: parsing, defaults, the CRD and the reference page are derived from
here. What Kubernetes itself defines (a pod's spec, where a variable's value comes from) is taken as
it is and not modelled again: that is what makes the CRDs of other operators 600 KB large.
Rejected: secrets as plain settings. They come from Secrets by `env` and `envFrom`.
"""

from __future__ import annotations

from functools import partial

from onyx.model import names
from onyx.model.cluster import (
    Account,
    Cluster,
    CodeSource,
    DataVolume,
    DisruptionBudget,
    EnvSource,
    EnvVar,
    NetworkRules,
    PodMetadata,
    PodTemplate,
    PullSecret,
    Resources,
    TlsSource,
    ZooKeeperAccess,
)
from onyx.model.information import API_VERSION
from onyx.model.job import EMPTY
from onyx.model.keys.compound import ListOf
from onyx.model.keys.kinds import Choice, Count, Flag, Options, PathName, Text
from onyx.model.keys.kubernetes import SECONDS, MapOf, Matching, count_or_percent, quantity
from onyx.model.keys.section import Entries, Entry, Key, Section

KIND = "OnyxCluster"
WORKERS_MAX = 1_000
PEERS_PER_WORKER_MAX = 256
LIST_ENTRIES_MAX = 128
VALUE_CHARACTERS_MAX = 32_768

_key = partial(Key, era="ours")

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
_ANNOTATIONS = MapOf(_ANNOTATION_KEY, _VALUE)
_AMOUNTS = MapOf(_RESOURCE, quantity(), entries_max=32)

ZOOKEEPER = Section(
    "zookeeper",
    "The ZooKeeper that holds the log.",
    (
        _key(
            "address",
            Matching("host:port, several separated by commas", f"{_HOST}(,{_HOST})*",
                     "such as zookeeper:2181", 2_048),
            "Where clients connect. Without it the address that the operator was installed with; "
            "when there is none either, no workers are made, and a condition says so.",
        ),
        _key(
            "auth_secret", _OBJECT,
            "Secret with user and password (digest), with which workers protect what they keep.",
        ),
    ),
    ZooKeeperAccess,
)  # fmt: skip
CODE = Section(
    "code",
    "Python files for a first try, without building an image.",
    (
        _key(
            "config_map", _OBJECT,
            "ConfigMap whose keys are files on the module path: flights.py is the module flights, "
            "flights.tasks.py the module flights.tasks.",
            required=True,
        ),
    ),
    CodeSource,
)  # fmt: skip
TLS = Section(
    "tls",
    "Certificates for the traffic of workers.",
    (
        _key(
            "secret_name", _OBJECT,
            "Secret with ca.crt, tls.crt and tls.key, as cert-manager makes it.", required=True,
        ),
        _key("zookeeper", Flag(), "Speak TLS to ZooKeeper too.", default=False),
    ),
    TlsSource,
)  # fmt: skip
DATA = Section(
    "data",
    "A volume that all workers share, for file inputs, outputs and state.",
    (
        _key(
            "claim_name", _OBJECT,
            "PersistentVolumeClaim; with several workers it must be ReadWriteMany.", required=True,
        ),
        _key(
            "mount_path", Matching("an absolute path", r"(/[A-Za-z0-9._-]+)+"),
            "Where workers see it; relative paths of jobs count from here.", default="/data",
            restriction="Not /tmp, and not below /etc/onyx or /opt/onyx, which the operator uses.",
        ),
    ),
    DataVolume,
)  # fmt: skip
ENV_VAR = Section(
    "variable",
    "A variable of the worker's container.",
    (
        _key("name", _VARIABLE, "Its name.", required=True),
        _key("value", _VALUE, "Its value.", default=""),
        _key(
            "value_from", Options(), "Where its value comes from, as in a pod: secretKeyRef, ...",
            default=EMPTY, restriction="Not together with value.",
        ),
    ),
    EnvVar,
)  # fmt: skip
ENV_SOURCE = Section(
    "source of variables",
    "A ConfigMap or Secret whose keys become variables.",
    (
        _key("prefix", Text(empty=True, characters_max=253), "Put before each name.", default=""),
        _key("config_map_ref", Options(), "name, and optional, of a ConfigMap.", default=EMPTY),
        _key("secret_ref", Options(), "name, and optional, of a Secret.", default=EMPTY),
    ),
    EnvSource,
)
PULL_SECRET = Section(
    "pull secret",
    "A Secret with the credentials of a registry.",
    (_key("name", _OBJECT, "Its name.", required=True),),
    PullSecret,
)
RESOURCES = Section(
    "resources",
    "Processor and memory of the worker's container.",
    (
        _key("requests", _AMOUNTS, "What it is scheduled by.", default=EMPTY),
        _key("limits", _AMOUNTS, "What it gets at most.", default=EMPTY),
    ),
    Resources,
)
POD_METADATA = Section(
    "pod metadata",
    "Labels and annotations of the pods.",
    (
        _key("labels", MapOf(_LABEL_KEY, _LABEL), "Labels besides the operator's.", default=EMPTY),
        _key("annotations", _ANNOTATIONS, "Annotations besides the operator's.", default=EMPTY),
    ),
    PodMetadata,
)
POD_TEMPLATE = Section(
    "pod template",
    "What is merged into the pods: lists of containers, volumes, variables, mounts and the like by "
    "name, other lists as a whole; null removes a key.",
    (
        _key("metadata", Entry(POD_METADATA), "Labels and annotations.", default=PodMetadata()),
        _key(
            "spec", Options(),
            "A pod's spec, as Kubernetes takes it; the container of the worker is called worker.",
            default=EMPTY,
        ),
    ),
    PodTemplate,
)  # fmt: skip
DISRUPTION_BUDGET = Section(
    "disruption budget",
    "What a drain of nodes may do.",
    (
        _key("enabled", Flag(), "Make a PodDisruptionBudget.", default=True),
        _key("max_unavailable", count_or_percent(), "Workers that may be away at once.", default=1),
    ),
    DisruptionBudget,
)
NETWORK_POLICY = Section(
    "network policy",
    "Who may reach the workers.",
    (
        _key(
            "enabled", Flag(),
            "Make a NetworkPolicy: only workers reach the workers' transport, anyone the metrics.",
            default=True,
        ),
    ),
    NetworkRules,
)  # fmt: skip
SERVICE_ACCOUNT = Section(
    "service account",
    "Who the workers are to Kubernetes; they need no rights there.",
    (
        _key("create", Flag(), "Make it.", default=True),
        _key(
            "name", _OBJECT,
            "Its name. Without it, the name of the StatefulSet if it is made, else default.",
        ),
        _key("annotations", _ANNOTATIONS, "For identities of clouds.", default=EMPTY),
    ),
    Account,
)  # fmt: skip

CLUSTER = Section(
    "cluster",
    "A pool of workers that run jobs.",
    (
        _key(
            "tenancy_id",
            PathName("the name of a tenancy"),
            "Separates clusters that share a ZooKeeper; without it the namespace and the name, "
            "with a dot between.",
            restriction="Cannot be changed: the log of another tenancy has other jobs.",
        ),
        _key(
            "job_scheduler", Choice(("balanced", "greedy", "percentage")),
            "How peers are dealt to jobs.", default="balanced",
            restriction="Cannot be changed: it is fixed in the log.",
        ),
        _key("replicas", Count(0, WORKERS_MAX, "workers"), "Pods of workers.", default=2),
        _key(
            "peers_per_worker", Count(1, PEERS_PER_WORKER_MAX, "peers"),
            "Virtual peers of each worker.", default=4,
        ),
        _key(
            "image", Matching("an image", r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", characters_max=512),
            "Image of the workers; without it the one that the operator was installed with.",
        ),
        _key(
            "image_pull_policy", Choice(("Always", "IfNotPresent", "Never")),
            "When the image is fetched; without it Kubernetes decides by the tag.",
        ),
        _key(
            "image_pull_secrets", Entries(PULL_SECRET, 16, map_key="name"),
            "Credentials for the registry.", default=(),
        ),
        _key(
            "modules",
            ListOf(Matching("a Python module", names.MODULE, "package.module, without a colon")),
            "Modules and packages whose functions jobs may name.", default=(),
        ),
        _key("code", Entry(CODE), "Python files from a ConfigMap."),
        _key("zookeeper", Entry(ZOOKEEPER), "The ZooKeeper of the log.", default=ZooKeeperAccess()),
        _key("tls", Entry(TLS), "Certificates of the workers."),
        _key("data", Entry(DATA), "A volume that the workers share."),
        _key(
            "settings", MapOf(_VARIABLE, Text(empty=True)),
            "Settings of the workers as ONYX_* variables; no secrets.", default=EMPTY,
            restriction="Variables that a worker knows, and that no other key sets.",
        ),
        _key(
            "env", Entries(ENV_VAR, LIST_ENTRIES_MAX, map_key="name"),
            "Further variables of the worker's container.", default=(),
            restriction="None that another key sets.",
        ),
        _key("env_from", Entries(ENV_SOURCE, 32), "Where further variables are.", default=()),
        _key("resources", Entry(RESOURCES), "Processor and memory.", default=Resources()),
        _key("pod_template", Entry(POD_TEMPLATE), "Merged into the pods.", default=PodTemplate()),
        _key(
            "pod_disruption_budget", Entry(DISRUPTION_BUDGET), "What a drain of nodes may do.",
            default=DisruptionBudget(),
        ),
        _key(
            "network_policy", Entry(NETWORK_POLICY), "Who may reach the workers.",
            default=NetworkRules(),
        ),
        _key(
            "service_account", Entry(SERVICE_ACCOUNT), "Who the workers are to Kubernetes.",
            default=Account(),
        ),
        _key(
            "termination_grace_period_seconds", SECONDS,
            "Time for a worker to leave the cluster before it is killed.", default=60,
        ),
    ),
    Cluster,
)  # fmt: skip

CLUSTER_MANIFEST = Section(
    "manifest",
    "The file: a Kubernetes object.",
    (
        _key("api_version", Choice((API_VERSION,)), "Version of this format.", required=True),
        _key("kind", Choice((KIND,)), "Kind of object.", required=True),
        _key("metadata", Options(), "name, and what Kubernetes adds.", required=True),
        _key("spec", Entry(CLUSTER), "The cluster.", required=True),
        _key("status", Options(), "Written by the operator; ignored here."),
    ),
)

CLUSTER_SECTIONS = (
    CLUSTER, ZOOKEEPER, CODE, TLS, DATA, ENV_VAR, ENV_SOURCE, PULL_SECRET, RESOURCES, POD_METADATA,
    POD_TEMPLATE, DISRUPTION_BUDGET, NETWORK_POLICY, SERVICE_ACCOUNT,
)  # fmt: skip
