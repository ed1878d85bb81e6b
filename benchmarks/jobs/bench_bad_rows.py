"""The function of the jobs with bad records, over record batches and over dicts."""

import pyarrow.compute as pc


def arrow_with_speed(batch):
    return batch.append_column("speed", pc.divide(batch["km"], batch["hours"]))


def dicts_with_speed(segment):
    return {**segment, "speed": segment["km"] / segment["hours"]}
