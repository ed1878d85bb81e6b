"""A function of one's own: a dict in, a dict out."""


def greet(person):
    return {"greeting": f"Hello, {person['name']} of {person['city']}!"}
