"""Jobs from Python: a cluster in this process, a job that ends by itself, and one that does not."""

from onyx.api import (
    Settings,
    await_job_completion,
    drain_job,
    gc,
    kill_job,
    peers_needed,
    resume_job,
    shutdown_env,
    shutdown_peer_group,
    start_env,
    start_peer_group,
    start_peers,
    submit_job,
    suspend_job,
)
from onyx.builder import Job, blackhole, generator, sequence


def same(order):
    return order


def main():
    once = Job("once").read(sequence(segments=[{"n": 1}])).map(same).write(blackhole()).build()
    endless = (
        Job("endless").read(generator(rate_per_second=10)).map(same).write(blackhole()).build()
    )
    env = start_env(Settings(modules=("control",)))
    group = start_peer_group(env.settings)
    try:
        start_peers(sum(peers_needed(once).values()), group)

        first = submit_job(env.settings, once)
        print("once completed:", await_job_completion(env.settings, first.job))

        second = submit_job(env.settings, endless)
        suspend_job(env.settings, second.job)  # its peers are free for others
        resume_job(env.settings, second.job)
        drain_job(env.settings, second.job)  # it finishes what it has read
        print("endless completed:", await_job_completion(env.settings, second.job))

        third = submit_job(env.settings, endless)
        kill_job(env.settings, third.job)
        print("killed completed:", await_job_completion(env.settings, third.job))
        gc(env.settings)  # nobody knows them any more
    finally:
        shutdown_peer_group(group)
        shutdown_env(env)


if __name__ == "__main__":
    main()
