"""The parts of a task, by how long each of them lives. Data only: phases decide.

* `Assignment`: who works on which task, and in which process. As long as the peer has the task.
* `Runtime`: the program of the task, and what a peer needs to run it. From when the job is loaded
  on; whole once the plugin is built.
* `Allocation`: connections and state. One allocation version of the job.
* `Work`: one batch on its way through the phases.
* `Status`: how the task gets on. Written by its own thread only, read by others as well.

A function takes the parts that it uses, so that its signature says what it can touch. Handing the
whole task to every function was rejected: then each of them may change everything.
"""
