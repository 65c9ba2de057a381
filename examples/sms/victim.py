#!/usr/bin/python3
"""A worker that stands still with a batch in its hands, for demo.py to kill.

It does so at the worst moment that does no harm: the messages are claimed,
and none of them is sent.
"""

import os
import signal

import worker


class Victim(worker.Worker):
    batches = 0

    def send(self, messages):
        self.batches += 1
        if self.batches == 4:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().send(messages)


if __name__ == "__main__":
    Victim(worker.options()).run()
