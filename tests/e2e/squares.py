"""The user's code of these tests: given to the workers as a file, as the chart allows."""


def square(segment):
    return {"n": segment["n"], "square": segment["n"] ** 2}
