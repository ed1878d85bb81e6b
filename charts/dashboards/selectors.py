"""The labels by which every query of a dashboard selects.

`namespace` and `pod` come from the scrape. `onyx_cluster`, the name of the OnyxCluster, is put on
by our PodMonitor. It is not called `cluster`, because that is the external label that names the
Kubernetes cluster.
"""

from __future__ import annotations

from charts.dashboards.panels import Variable

FLEET = 'namespace=~"$namespace", onyx_cluster=~"$cluster"'
"""Of whole clusters."""
JOB = f'{FLEET}, job=~"$job"'
"""Of one job."""
TASK = f'{JOB}, task=~"$task"'
"""Of some tasks of it."""
BY_CLUSTER = "namespace, onyx_cluster"

NAMESPACE = Variable("namespace", "namespace", "onyx_build_info")
CLUSTER = Variable("cluster", "onyx_cluster", 'onyx_build_info{namespace=~"$namespace"}')
JOBS = Variable("job", "job", f"onyx_task_segments_in_total{{{FLEET}}}", many=False)
TASKS = Variable("task", "task", f"onyx_task_segments_in_total{{{JOB}}}")

OPERATOR = 'namespace=~"$namespace"'
"""Of operators; they serve several clusters, so there is no label of one."""
OPERATOR_NAMESPACE = Variable("namespace", "namespace", "onyx_operator_clusters_connected")
