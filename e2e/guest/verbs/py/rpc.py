# SPDX-License-Identifier: Apache-2.0
"""Calls of one endpoint's methods from the other guest: a JSON object a line."""

import json
import socket
import traceback


class RemoteError(Exception):
    """What a method raised on the other side."""


class Proxy:
    """An Endpoint behind a socket. Methods take and return what JSON can hold."""

    def __init__(self, host, port):
        self._sock = socket.create_connection((host, port), timeout=300)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._sock.makefile('rwb')

    def _send(self, method, args, kwargs):
        self._file.write(json.dumps([method, args, kwargs]).encode() + b'\n')
        self._file.flush()

    def _receive(self, method):
        line = self._file.readline()
        if not line:
            raise RemoteError(f'{method}: the other side is gone')
        ok, value = json.loads(line)
        if not ok:
            raise RemoteError(f'{method}: {value}')
        return value

    def begin(self, method, *args, **kwargs):
        """Starts a call and returns a function that waits for its end."""
        self._send(method, args, kwargs)
        return lambda: self._receive(method)

    def __getattr__(self, method):
        return lambda *args, **kwargs: self.begin(method, *args, **kwargs)()


def serve(endpoint, port):
    """Does what one client asks for, until it is gone."""
    with socket.create_server(('', port)) as listener:
        conn, _ = listener.accept()
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with conn.makefile('rwb') as f:
        for line in f:
            method, args, kwargs = json.loads(line)
            try:
                answer = [True, getattr(endpoint, method)(*args, **kwargs)]
            except Exception:
                answer = [False, traceback.format_exc()]
            f.write(json.dumps(answer).encode() + b'\n')
            f.flush()
