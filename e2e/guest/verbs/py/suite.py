# SPDX-License-Identifier: Apache-2.0
"""suite.py DIRECTORY DEVICE [MODULE...]: runs rdma-core's own Python tests and
prints {"class", "name", "verdict", "text", "seconds"} for each, one a line."""

import importlib.util
import json
import os
import sys
import time
import unittest

directory, device, modules = sys.argv[1], sys.argv[2], sys.argv[3:]
# Some tests print; their words go where errors go.
verdicts = os.fdopen(os.dup(1), 'w')
os.dup2(2, 1)


class Result(unittest.TestResult):
    """Says of each test what became of it."""

    def startTest(self, test):
        super().startTest(test)
        self.begun, self.verdict, self.text = time.monotonic(), 'pass', ''

    def addSkip(self, test, reason):
        self.verdict, self.text = 'skip', reason

    def addError(self, test, err):
        self._failed(err)

    def addFailure(self, test, err):
        self._failed(err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(err)

    def _failed(self, err):
        self.verdict, self.text = 'fail', f'{err[0].__name__}: {err[1]}'

    def stopTest(self, test):
        super().stopTest(test)
        cls = type(test)
        print(json.dumps({
            'class': cls.__module__.removeprefix('tests.') + '.' + cls.__name__, 'name': test._testMethodName,
            'verdict': self.verdict, 'text': self.text, 'seconds': time.monotonic() - self.begun,
        }), file=verdicts, flush=True)


sys.path.insert(0, directory)
sys.argv = ['run_tests.py', '--dev', device]
from args_parser import parser  # noqa: E402, of the directory

parser.parse_args()
spec = importlib.util.spec_from_file_location('tests', os.path.join(directory, '__init__.py'))
tests = importlib.util.module_from_spec(spec)
sys.modules['tests'] = tests
spec.loader.exec_module(tests)
loader, suite = unittest.TestLoader(), unittest.TestSuite()
for m in tests.__test_modules__:
    if not modules or m.__name__.removeprefix('tests.') in modules:
        suite.addTests(loader.loadTestsFromModule(m))
suite.run(Result())
