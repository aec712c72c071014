"""A server under test, and requests to it, with nothing but Python's own library."""
import http.client
import json
import os
import signal
import subprocess
import time


class Server:
    """`longshot serve MODEL port=0 WORDS...`, until the with block ends."""

    def __init__(self, program, model, *words, quiet=True):
        self.process = subprocess.Popen(
            [program, "serve", model, "port=0", "threads=1", *(["--quiet"] if quiet else []), *words],
            stdout=subprocess.PIPE, stderr=None if quiet else subprocess.PIPE, text=True)
        address = self.process.stdout.readline().strip()
        if not address.startswith("http://"):
            raise SystemExit(f"the server did not start: {address!r}, {self.process.wait()}")
        self.address = address
        self.host, self.port = address[len("http://"):].rsplit(":", 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code != 0:
            raise SystemExit(f"the server ended with {code}")

    def connect(self, timeout=60):
        return http.client.HTTPConnection(self.host, int(self.port), timeout=timeout)

    def ask(self, path, body=None, headers=None, connection=None, method=None):
        """(code, text) of one request; body: anything that JSON has, or bytes."""
        own = connection or self.connect()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        own.request(method or ("GET" if body is None else "POST"), path, data, headers or {})
        answer = own.getresponse()
        text = answer.read().decode()
        if connection is None:
            own.close()
        return answer.status, text

    def json(self, path, body=None, **more):
        code, text = self.ask(path, body, **more)
        if code != 200:
            raise AssertionError(f"{path} {body}: {code} {text}")
        return json.loads(text)

    def metric(self, name):
        code, text = self.ask("/metrics")
        for line in text.splitlines():
            if line.startswith(f"longshot_{name} "):
                return float(line.split()[1])
        raise AssertionError(name)

    def seconds(self):
        """Processor time of the process so far."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        """Bytes that the process has in memory."""
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("VmRSS")


def events(text):
    """The objects of a stream, which must end as streams do."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines), text
    assert lines[-1] == "data: [DONE]", text
    return [json.loads(line[len("data: "):]) for line in lines[:-1]]


def wait_until(true, seconds=30, what="it"):
    end = time.time() + seconds
    while not true():
        if time.time() > end:
            raise AssertionError(f"{what} did not happen in {seconds} s")
        time.sleep(0.02)
