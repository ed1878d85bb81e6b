"""What runs in the place of `spark-submit` where JVMs are lent: see `lent_jvms`.

    borrow_jvm.py FOLDER HOME [arguments of spark-submit]

It begins with each session of Spark, so it imports little.
"""

import json
import os
import re
import select
import socket
import struct
import sys
import time

WAIT_S = 300.0
ROOT = os.path.abspath(f"{__file__}/../../../..")
CANNOT = re.compile(
    r"spark\.(jars(?!\.ivy)|files|archives|submit|driver\.(extraClassPath|extraLibraryPath|memoryOverhead)|"
    r"plugins|eventLog|ui\.port|hadoop|executor\.|python\.(?!worker))"
)
"""Settings of which a JVM learns as it starts, or never."""
FLAGS = re.compile(r"-D\S+|-XX:-UsePerfData|-XX:\+UseSerialGC|-XX:TieredStopAtLevel=1")
ANSWER = "_PYSPARK_DRIVER_CONN_INFO_PATH"


def main(folder, real, arguments):
    settings = settings_of(arguments)
    if settings is None:
        os.environ["SPARK_HOME"] = real
        submit = f"{real}/bin/spark-submit"
        os.execv(submit, [submit, *arguments])
    lender, (port, secret) = borrowed(folder, real, settings)
    target = os.environ[ANSWER]
    with open(f"{target}.new", "wb") as file:
        file.write(struct.pack("!ii", port, len(secret)) + secret.encode())
    os.rename(f"{target}.new", target)
    while True:
        ready, _, _ = select.select([sys.stdin, lender], [], [])
        if lender in ready:
            sys.exit("the JVM has ended")
        if not os.read(0, 4096):
            return


def settings_of(arguments):
    """What is asked of a JVM; None if it has to be one of its own."""
    *given, last = arguments
    if last != "pyspark-shell" or os.getcwd() != ROOT:
        return None
    settings = {}
    for each in given:
        name, is_given, value = each.removeprefix("--conf=").partition("=")
        if not each.startswith("--conf=") or not is_given or CANNOT.match(name):
            return None
        settings[name] = value
    flags = settings.get("spark.driver.extraJavaOptions", "").split()
    plain = (
        settings.get("spark.master", "").startswith("local[")
        and settings.get("spark.driver.memory") == "1g"
        and all(map(FLAGS.fullmatch, flags))
    )
    return settings if plain else None


def borrowed(folder, real, settings):
    environment = {name: value for name, value in os.environ.items() if name != ANSWER}
    asked = json.dumps({"settings": settings, "environment": environment}).encode() + b"\n"
    until_s = time.monotonic() + WAIT_S
    begun = 0
    while time.monotonic() < until_s:
        for name in sorted(os.listdir(folder)):
            if name.endswith(".jvm") and (found := lent(f"{folder}/{name}", asked)):
                return found
        begun = begun or begin(folder, real)
        if os.waitpid(begun, os.WNOHANG)[0]:
            break
        time.sleep(0.05)
    sys.exit(f"no JVM can be borrowed: see the logs in {folder}")


def lent(place, asked):
    lender = socket.socket(socket.AF_UNIX)
    try:
        lender.connect(place)
        lender.sendall(asked)
        data = b""
        while not data.endswith(b"\n"):
            if not (more := lender.recv(4096)):
                raise OSError
            data += more
    except OSError:  # it has another borrower, or has ended
        lender.close()
        return None
    return lender, json.loads(data)


def begin(folder, real):
    """Start a lender, which outlives us; its process id."""
    if pid := os.fork():
        return pid
    os.setsid()
    os.chdir(ROOT)
    name = f"{os.getpid()}-{time.time_ns() % 1000}"
    log = os.open(f"{folder}/{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    command = [sys.executable, "-m", "tests.support.spark.lent_jvms", folder, real, name]
    return os.execv(sys.executable, command)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
