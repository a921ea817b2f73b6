#!/usr/bin/env python3
"""Verifies campaigns of dns64bench without dns64bench.

Written from docs/verification.md, docs/journal.md, docs/plan.md and the JSON Schemas in crates/tester/schema, not from
the source of dns64bench. Needs Python 3.11, and OpenSSH for signatures.

Exit code: 0 everything follows, 1 something does not, 2 it cannot be read.
"""

import argparse
import copy
import functools
import hashlib
import itertools
import json
import math
import operator
import statistics
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path

FORMAT, SECOND, MS, HALF_A_DAY_MS = 2, 10**9, 10**6, 12 * 3_600_000
SCHEMAS = Path(__file__).resolve().parent.parent / "crates/tester/schema"
KINDS = "campaign session self_test variant started trial finished abandoned stopped complete".split()
PLACES = "not_sent to_dut dut_host dut_sockets to_authority authority from_authority dut from_dut measurer late not_valid".split()
NOT_OF_THE_RATE = "authority_died clock_step link host_late host_clock interrupted too_few_names".split()
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int, "number": (int, float)}


class Wrong(Exception):
    """Something does not follow: where, the value found and the value expected."""


class Unreadable(Exception):
    """It cannot be judged."""


def need(fits, field, found, expected):
    if not fits:
        found, expected = (value if isinstance(value, str) else json.dumps(value, default=str) for value in (found, expected))
        raise Wrong(f"{field}: found {found[:300]}, expected {expected[:300]}")


def same(field, found, expected):
    need(found == expected, field, found, expected)


def same_keys(at, found, expected):
    """Compares some keys of an object. Quotients may differ in the last digits."""
    for key, value in expected.items():
        is_close = isinstance(value, float) and isinstance(found[key], (int, float)) and math.isclose(found[key], value, rel_tol=1e-9)
        need(is_close or found[key] == value, at + key, found[key], value)


def parse(octets):
    def once(pairs):
        same("keys", len(dict(pairs)), len(pairs))
        return dict(pairs)

    def finite(text):
        need(math.isfinite(float(text)), "a number", text, "one with an end")
        return float(text)

    try:
        return json.loads(octets.decode(), object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise Wrong(f"found {error}, expected JSON in UTF-8") from None


def conform(value, schema, root, at=""):
    """Checks a value by the part of JSON Schema that the schemas use."""
    if "$ref" in schema:
        conform(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/").replace("~1", "/")], root, at)
    wrong = []
    for choice in schema.get("oneOf") or schema.get("anyOf") or ():
        try:
            conform(value, choice, root, at)
            break
        except Wrong as error:
            # The choice that has the key of the value says best what is wrong.
            is_meant = isinstance(value, dict) and set(value) & set(choice.get("properties", value))
            wrong.append((not is_meant, len(wrong), error))
    else:
        if wrong:
            raise min(wrong)[2]
    if "const" in schema:
        same(at, value, schema["const"])
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        fits = [kind for kind in kinds if isinstance(value, TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")]
        need(fits, at, value, " or ".join(kinds))
        need("minimum" not in schema or value is None or value >= schema["minimum"], at, value, f"at least {schema.get('minimum')}")
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for key in dict.fromkeys([*schema.get("required", []), *value]):
            inner = known.get(key, others)
            found, expected = ("a key", "none of this name") if key in value else ("no key", "one")
            need(key in value and inner is not False, f"{at}.{key}", found, expected)
            conform(value[key], inner, root, f"{at}.{key}")
    if isinstance(value, list):
        prefix = schema.get("prefixItems", [])
        for k, inner in enumerate(value):
            conform(inner, prefix[k] if k < len(prefix) else schema.get("items", {}), root, f"{at}[{k}]")


# Plans


TIMES = {"us": 10**3, "ms": MS, "s": SECOND, "": SECOND, "m": 60 * SECOND, "min": 60 * SECOND, "h": 3600 * SECOND}
RATES, SHARES, FACTORS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6}, {"": 10**6, "%": 10**4}, {"": 1000}
FOUND = {"ended": "found"}
# A search without a plan.
SPEC = {"start_qps": 1, "ceiling_qps": None, "max_qps": None, "invalid_repeats": 3, "first_step_qps": None, "fixed_range_qps": None}


# Goals by name.
GOALS = {
    "rfc2544": "loss=0%,exceed=0%,trial=60s,sum=60s,width=0.1%", "tst009": "loss=0%,exceed=50%,trial=60s,sum=120s,width=0.1%",
    "ndr": "loss=0%,exceed=50%,trial=1s,sum=20s,width=0.5%", "pdr": "loss=0.5%,exceed=50%,trial=1s,sum=20s,width=0.5%",
    "interval": "interval,loss=0%,exceed=50%,trial=1s,sum=72s,width=2%",
}


def number(units, value):
    """A number with a unit, exactly."""
    digits = str(value).rstrip("abcdefghijklmnopqrstuvwxyzKM%")
    return int(Fraction(digits) * units[str(value)[len(digits):]])


def listed(value):
    return value if isinstance(value, list) else [value]


class Point:
    def __init__(self, number, variant, cell, spans):
        self.number, self.variant, (self.cached, self.pattern, self.aaaa), (self.duration_ns, self.timeout_ns) = number, variant, cell, spans
        kind, _, numbers = self.pattern.partition(":")
        names, _, exponent = numbers.partition(",")
        words = {"one-name": "", "stack": f" (stack distance {names})", "window": f" (the last {names} names)"}
        pattern = words.get(kind, f" (Zipf {exponent} over {names} names)")
        self.cell = f"AAAA {self.aaaa / 10**4:g}%, cached {self.cached / 10**4:g}%{pattern}"
        self.result_timeout_ns = self.timeout_ns // (4 if variant["is_authority"] else 1)


class Plan:
    """What the text of a plan says about points, tasks and rates."""

    def __init__(self, plan):
        trial, search, self.tester, self.hosts = (plan.get(name, {}) for name in ("trial", "search", "tester", "hosts"))
        strange = set(search) - set("start-rate max-rate resolution restart runs method reuse stop-early settle order goals".split())
        if strange:
            raise Unreadable(f"the plan has search.{min(strange)}, which this program does not know")
        self.limits = {
            "max_stall_ns": number(TIMES, trial.get("max-stall", "10ms")), "max_burst_queries": int(trial.get("max-burst", 32)),
            "max_rate_error_pct": float(str(trial.get("max-rate-error", 10)).rstrip("%")),
            "max_stolen_pct": float(str(trial.get("max-stolen", 1)).rstrip("%")),
        }
        self.self_tests, self.runs, self.reuse = int(self.tester.get("self-tests", 3)), int(search.get("runs", 20)), search.get("reuse", True)
        self.is_fixed, self.goals = search.get("method") == "fixed-range", [Goal(text) for text in listed(search.get("goals", []))]
        self.stop_early = search.get("stop-early", not self.is_fixed)
        self.max_qps = number(RATES, search["max-rate"]) if "max-rate" in search else None
        self.start_qps = number(RATES, search.get("start-rate", min(10_000, self.max_qps or 10_000)))
        self.resolution = resolution(str(search.get("resolution", "0.1%")))
        spans = number(TIMES, trial.get("duration", "60s")), number(TIMES, trial.get("timeout", "1s"))
        rows = [(cell, spans) for cell in self.cells(plan.get("cells", {}))]
        if "queue-check" in plan:
            timeouts = listed(plan["queue-check"].get("timeouts", ["0.5s", "1s", "5s"]))
            durations = listed(plan["queue-check"].get("durations", ["5s", "10s", "30s", "60s"]))
            rows += [(rows[0][0], (number(TIMES, d), number(TIMES, t))) for t in timeouts for d in durations]
        variants = [variant for dut in plan["dut"] for variant in self.variants_of(dut)]
        for k, variant in enumerate(variants):
            variant["number"] = k
        each = itertools.product(variants, dict.fromkeys(rows))
        self.variants, self.points = variants, [Point(k, variant, *row) for k, (variant, row) in enumerate(each)]
        self.factors_milli = [number(FACTORS, f) for f in listed(plan.get("overload", {}).get("factors", [0.5, 1, 1.5, 2, 3, 5]))]
        soak = plan.get("soak", {})
        self.soak = number(SHARES, soak.get("share", "80%")), -(-number(TIMES, soak.get("length", "4h")) // spans[0])
        points, runs = range(len(self.points)), range(1, self.runs + 1)
        tasks = [(p, r) for p in points for r in runs] if search.get("order") == "sequential" else [(p, r) for r in runs for p in points]
        firsts = [k * len(self.points) // len(variants) for k, variant in enumerate(variants) if not variant["is_authority"]]
        usual = [p for p in points for it in [self.points[p]] if (it.duration_ns, it.timeout_ns) == spans and not it.variant["is_authority"]]
        self.tasks = [("search", *task) for task in tasks] + [("goals", p, 0) for p in usual if self.goals] + [(kind, p, 0) for kind in ("overload", "soak") if kind in plan for p in firsts]

    def variants_of(self, dut):
        swept = [values for _, values in sorted(dut.get("sweep", {}).items())]
        keys = {"cores": 0, "namespace": 0, "authority-behaviour": 0, "pacing": "absolute"}
        own = [listed(dut.get(key, default)) for key, default in keys.items()]
        is_authority, is_server = "authority" in dut, "server" in dut
        authority = dut["authority"] if is_authority else self.tester.get("authority", "built-in")
        kind = "server" if is_server else authority if authority == "built-in" else "driver" if authority.startswith("in-driver") else "program"
        roles = {name: {*listed(host["roles"])} for name, host in self.hosts.items()}
        duts = [name for name in roles if "dut" in roles[name]]
        beside = set(duts) - ({dut.get("host", duts[0])} if duts and not is_authority else set())
        roles = {name: own for name, own in roles.items() if name not in beside}
        needs = not is_authority and not self.tester.get("uncertified") and (not is_server or "self-test-server" in dut)
        for *_, pacing in itertools.product(*map(listed, swept), *own):
            yield {"is_authority": is_authority, "is_server": is_server, "authority": kind, "pacing": pacing, "roles": roles, "needs": needs}

    @staticmethod
    def cells(table):
        fifths, none = [k * 200_000 for k in range(6)], [0]
        aaaa, cached = ([number(SHARES, share) for share in listed(table.get(key, 0))] for key in ("aaaa-share", "cached-share"))
        grids = {None: (aaaa, cached), "aaaa": (fifths, none), "cached": (none, fifths), "rfc8219": (fifths, fifths)}
        aaaa, cached = grids.get(table.get("grid"), (none, none))
        each = itertools.product(cached, listed(table.get("pattern", "one-name")), aaaa)
        each = [(share, pattern if share else "one-name", own) for share, pattern, own in each if share < 10**6 or own == aaaa[0]]
        return list(dict.fromkeys(each))

    def rates(self, kind, base_qps):
        if kind == "overload":
            return [max(1, base_qps * milli // 1000) for milli in self.factors_milli]
        return [max(1, base_qps * self.soak[0] // 10**6)] * self.soak[1]

    def search(self, point, ceiling_qps, before, goals=()):
        shortest_ns = min((goal.initial_ns for goal in goals), default=point.duration_ns)
        spec = SPEC | {"resolution": self.resolution, "ceiling_qps": ceiling_qps, "lowest_qps": -(-SECOND // shortest_ns)}
        if self.is_fixed and goals:
            return spec | {"start_qps": self.max_qps // 2, "max_qps": self.max_qps}
        if self.is_fixed:
            return spec | {"fixed_range_qps": self.max_qps}
        spec |= {"start_qps": self.start_qps, "max_qps": self.max_qps}
        if before and self.reuse:
            margin = before[0] // 8 if len(before) == 1 else (max(before) - min(before)) // 2
            margin = max(margin, 2 * resolution_qps(self.resolution, max(before)))
            start = max(min(before) - margin, 1)
            return spec | {"start_qps": max(start, spec["lowest_qps"]), "first_step_qps": max(before) + margin - start}
        low_qps, limit = max(spec["start_qps"] // 20, 1, spec["lowest_qps"]), Search(spec).limit
        return spec if before or goals or low_qps >= min(spec["start_qps"], limit) else spec | {"low_load_qps": low_qps}


# Searches, self-tests, statistics


def resolution(text):
    return {"relative": {"millionths": number(SHARES, text)}} if text.endswith("%") else {"absolute": {"qps": number(RATES, text)}}


def resolution_qps(resolution, passed):
    share = resolution.get("relative")
    return max(1, passed * share["millionths"] // 10**6 if share else resolution["absolute"]["qps"])


class Search:
    def __init__(self, spec):
        self.spec, self.passed, self.failed, self.invalid, self.end, self.is_suspect = spec, None, None, 0, None, False
        self.low_qps = spec.get("low_load_qps")
        self.wanted = min((spec[key] for key in ("max_qps", "fixed_range_qps") if spec[key] is not None), default=2**64)
        self.tester = 10**9 if spec["ceiling_qps"] is None else spec["ceiling_qps"]
        self.limit = max(1, min(self.wanted, self.tester))
        self.start = min(max(spec["start_qps"], 1), self.limit)

    def rate(self):
        """The next rate; None when it is over."""
        passed, failed, step, lowest = self.passed, self.failed, self.spec["first_step_qps"], self.spec["lowest_qps"]
        if self.end:
            return None
        if self.spec["fixed_range_qps"] is not None:
            low, high = passed or 0, self.limit if failed is None else failed
            return min(max(low + max(high - low, 0) // 2, lowest, 1), self.limit)
        if passed is None and failed is None:
            return self.start if self.low_qps is None else self.low_qps
        if failed is None and passed < self.start:
            return self.start
        if failed is None:
            return min(2 * passed if step is None else passed + max(passed - self.start, 0) + max(step, 1), self.limit)
        if passed is None:
            return max(failed // 2, 0 if step is None else failed - max(self.start - failed, 0) - max(step, 1), lowest)
        return passed + (failed - passed) // 2

    def is_repeated(self, outcome, fault):
        """Whether a trial was invalid, which may be the last."""
        if outcome == "invalid":
            is_over = self.invalid == self.spec["invalid_repeats"] or fault == "interrupted"
            self.end = {"ended": "tester_fault", "fault": fault} if is_over else None
        self.invalid = self.invalid + 1 if outcome == "invalid" else 0
        return outcome == "invalid"

    def observe(self, outcome, fault, _=None):
        rate = self.rate()
        if self.is_repeated(outcome, fault):
            return
        if outcome != "passed" and rate == self.low_qps and not self.is_suspect:
            self.is_suspect = True
            return
        self.passed, self.failed = (rate, self.failed) if outcome == "passed" else (self.passed, rate)
        self.settle()

    def settle(self):
        is_fixed, resolution = self.spec["fixed_range_qps"] is not None, resolution_qps(self.spec["resolution"], self.passed or 0)
        if self.passed is None:
            if self.failed <= max(self.spec["lowest_qps"], resolution if is_fixed else 0):
                self.end = {"ended": "nothing_passes"}
        elif self.failed is None:
            if self.limit - self.passed <= (resolution if is_fixed else 0):
                by = "request" if self.wanted <= self.tester else "tester"
                self.end = {"ended": f"limited_by_{by}", "limit_qps": self.passed}
        elif self.failed - self.passed <= resolution:
            self.end = FOUND


class Goal:
    def __init__(self, text):
        self.text, text = text, GOALS.get(text, text)
        self.is_interval = text.startswith("interval,")
        keys = dict(part.split("=") for part in text.removeprefix("interval,").split(","))
        self.loss, self.exceed = (number(SHARES, keys[key]) for key in ("loss", "exceed"))
        self.trial_ns, self.sum_ns = (number(TIMES, keys[key]) for key in ("trial", "sum"))
        self.initial_ns = number(TIMES, keys.get("initial", keys["trial"]))
        self.width = resolution(keys["width"]) if "width" in keys else {"relative": {"millionths": max(5000, self.loss)}}
        self.known = self.is_interval, self.loss, self.exceed, self.initial_ns, self.trial_ns, self.sum_ns, self.width

    def is_missed(self, queries, lost):
        """Whether a trial lost more than the goal tolerates."""
        return lost * 10**6 > self.loss * queries

    def stages(self):
        coarse = copy.copy(self)
        coarse.trial_ns = coarse.sum_ns = self.initial_ns
        return [coarse, self] if self.initial_ns < self.trial_ns else [self]

    def bound(self, trials):
        """Whether a rate achieves the goal, whatever its further trials say; None if they decide."""
        subceed, sums = 10**6 - self.exceed, {(short, high): 0 for short in (False, True) for high in (False, True)}
        for duration_ns, queries, lost in trials:
            sums[duration_ns < self.trial_ns, self.is_missed(queries, lost)] += duration_ns
        excess = max(0, sums[True, True] * subceed - sums[True, False] * self.exceed)
        high, low = sums[False, True] * subceed + excess, sums[False, False] * subceed
        whole = max(high + low, self.sum_ns * subceed)
        if high * 10**6 > whole * self.exceed:
            return False
        return True if (whole - low) * 10**6 <= whole * self.exceed else None

    def throughput(self, rate_qps, trials):
        full = sorted((trial for trial in trials if trial[0] >= self.trial_ns), key=lambda trial: Fraction(trial[2], trial[1]))
        left = max(sum(trial[0] for trial in full), self.sum_ns) * (10**6 - self.exceed)
        for duration_ns, queries, lost in full:
            left -= duration_ns * 10**6
            if left <= 0:
                return rate_qps * (queries - lost) // queries
        return 0


class Goals(Search):
    """A search for goals (RFC 9971)."""
    def __init__(self, spec):
        super().__init__(spec)
        goals, self.loads = [Goal(text) for text in spec["goals"]], {}
        self.goals = [goal for goal in goals if not goal.is_interval]
        self.interval = Interval(goals[0], self.focused(goals[0])) if goals[0].is_interval else None

    def focused(self, goal, near_qps=None):
        """The strict search whose bounds are those of a goal."""
        spec = self.spec | {"resolution": goal.width, "start_qps": near_qps or self.spec["start_qps"], "fixed_range_qps": None}
        search = Search(spec | ({"first_step_qps": resolution_qps(goal.width, near_qps)} if near_qps else {}))
        bounds = [(rate, bound) for rate, trials in sorted(self.loads.items()) for bound in [goal.bound(trials)] if bound is not None]
        search.failed = min((rate for rate, bound in bounds if not bound), default=None)
        search.passed = max((rate for rate, bound in bounds if bound and (search.failed is None or rate < search.failed)), default=None)
        if search.passed or search.failed:
            search.settle()
        return search

    def next(self):
        """Rate and length of the next trial."""
        near_qps, rate = None, self.interval and not self.end and self.interval.rate()
        if rate:
            return rate, self.interval.goal.trial_ns
        for goal in (stage for goal in self.goals for stage in goal.stages()) if not self.end else ():
            search = self.focused(goal, near_qps)
            near_qps = search.passed or search.failed or near_qps
            if not search.end:
                start = max(search.start, search.spec["lowest_qps"])
                is_ahead = search.passed is None and search.failed is not None and start < search.failed
                return (start if is_ahead or search.failed is None and (search.passed or 0) < start else search.rate()), goal.trial_ns
        return None, None

    def rate(self):
        return self.next()[0]

    def observe(self, outcome, fault, trial):
        rate, length_ns = self.next()
        if self.is_repeated(outcome, fault):
            return
        if self.interval and self.interval.rate():
            self.interval.observe(rate, not self.interval.goal.is_missed(trial["queries_due"], trial["shortfall"]))
        self.loads.setdefault(rate, []).append((length_ns, trial["queries_due"], trial["shortfall"]))
        if self.rate() is None:
            ends = [search.end for search in ([self.interval] if self.interval else []) + [self.focused(goal) for goal in self.goals]]
            self.end = next((end for end in ends if end != FOUND), FOUND)

    def results(self):
        found = [self.interval.result()] if self.interval else []
        for goal in self.goals:
            search = self.focused(goal)
            throughput = goal.throughput(search.passed, self.loads[search.passed]) if search.passed else None
            found.append(result(goal, search.end, search.passed, search.failed, throughput))
        return found


def result(goal, end, lower_qps, upper_qps, throughput_qps):
    return {"goal": goal.text, "lower_qps": lower_qps, "upper_qps": upper_qps, "throughput_qps": throughput_qps, **(end or {})}


class Interval:
    """The trials up and down for the interval of a goal, after the search for a bracket."""

    def __init__(self, goal, search):
        self.goal, self.search, self.trials, self.height, self.found, self.end = goal, search, [], 0, None, None

    def rate(self):
        """The next rate; None when it is over."""
        search = self.search
        if self.end or not search.end:
            return None if self.end else search.rate()
        rate = search.passed + (search.failed - search.passed) // 2 + self.height * resolution_qps(self.goal.width, search.passed)
        return min(max(rate, search.spec["lowest_qps"]), search.limit)

    def observe(self, rate, is_passed):
        self.trials.append((rate, is_passed))
        count = len(self.trials)
        if not self.search.end:
            self.search.observe("passed" if is_passed else "failed", None)
            self.end = None if self.search.end == FOUND else self.search.end
            return
        self.height += 1 if is_passed else -1
        if count < 24 or count % 8:
            return
        self.found, wanted = interval(self.trials), resolution_qps(self.goal.width, self.search.passed) / self.search.passed
        low, rate, high = self.found or (0, 1, math.inf)
        times = (high - low) / rate / wanted
        if times <= 1:
            self.end = FOUND
        elif count * self.goal.trial_ns >= self.goal.sum_ns:
            self.end = {"ended": "too_wide", "trials": math.ceil(count * times * times) if self.found else None}

    def result(self):
        low, rate, high = self.found or (None, None, None)
        rounded = (math.floor(low), math.ceil(high), math.floor(rate + 0.5)) if self.found else (None, None, None)
        return result(self.goal, self.end, *rounded)


def interval(trials):
    """The rate at which half of the trials pass, between the ends of its 95 % interval; None if they do not tell."""
    rates = [(math.log(rate), trials.count((rate, True)), trials.count((rate, False))) for rate in sorted({rate for rate, _ in trials})]

    def residuals(x, slope):
        return [passed * probability(slope * (at - x)) - failed * probability(slope * (x - at)) for at, passed, failed in rates]

    def slope(x):
        def is_too_flat(logarithm):
            return total(residual * (x - at) for residual, (at, *_) in zip(residuals(x, math.exp(logarithm)), rates)) > 0
        return math.exp(turn(math.log(0.5), math.log(10**4), is_too_flat))

    def likelihood(x):
        best = slope(x)
        return total(passed * ln_probability(best * (x - at)) + failed * ln_probability(best * (at - x)) for at, passed, failed in rates)

    reach = math.log(10)
    best = turn(rates[0][0] - reach, rates[-1][0] + reach, lambda x: total(residuals(x, slope(x))) > 0)
    least = likelihood(best) - 1.3078 * student(len(trials) - 2) ** 2 / 2
    is_likely = lambda x: likelihood(x) >= least
    if len({is_passed for _, is_passed in trials}) < 2 or is_likely(best - reach) or is_likely(best + reach):
        return None
    ends = turn(best - reach, best, lambda x: not is_likely(x)), best, turn(best, best + reach, is_likely)
    return [math.floor(math.exp(x) * 10 + 0.5) / 10 for x in ends]


def turn(low, high, is_below):
    """Where a condition becomes false between these numbers."""
    for _ in range(22):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def total(values):
    """The sum in this order, which sum() does not keep in every version."""
    return functools.reduce(operator.add, values)


def probability(logit):
    try:
        return 1 / (1 + math.exp(-logit))
    except OverflowError:
        return 0.0


def ln_probability(logit):
    return min(logit, 0) - math.log1p(math.exp(-abs(logit)))


def student(freedom):
    """The 97.5 % quantile of Student's t."""
    z = 1.959963984540054
    return (z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3))


def kind_of(fault):
    return fault if isinstance(fault, str) else next(iter(fault))


def is_refused(end):
    return end["outcome"] == "failed" or end["outcome"] == "invalid" and kind_of(end["fault"]) not in NOT_OF_THE_RATE


class SelfTest:
    """A self-test, made again from its recorded trials. It may begin at a rate that an earlier one certified."""

    def __init__(self, plan, test, near_qps):
        self.trials, self.at, self.passed_qps, self.certified_qps, self.last = test["trials"], 0, None, None, None
        duration_ns = test["conditions"]["duration_ns"]
        rate = near_qps or self.propose(plan, min(5 * SECOND, duration_ns))
        for pct in (10, 20, 40, 80, 100) if rate else ():
            self.last = self.attempt(-(-11 * rate // 5), duration_ns)
            if self.last["outcome"] == "passed":
                self.passed_qps, self.certified_qps = -(-11 * rate // 5), rate
            lower = rate * (100 - pct) // 100
            if not is_refused(self.last) or not lower:
                break
            rate = lower
        same("self_test.trials", len(self.trials), self.at)

    def attempt(self, rate, duration_ns):
        for repeat in itertools.count(1):
            need(self.at < len(self.trials), f"self_test.trials[{self.at}]", "nothing", f"a trial at {rate} queries/s")
            trial = self.trials[self.at]
            same(f"self_test.trials[{self.at}]", [trial["rate_qps"], ns(trial["duration_s"])], [rate, duration_ns])
            self.at += 1
            if trial["outcome"] != "invalid" or trial["fault"] == "interrupted":
                return trial
            is_stall = kind_of(trial["fault"]) in ("late_schedule", "rate_error", "catch_up_burst", "disturbed")
            if repeat > ((0 if trial["timing"]["lateness_ns_p50"] >= 10 * MS else 3) if is_stall else 1):
                return trial

    def propose(self, plan, duration_ns):
        search = Search(SPEC | {"start_qps": 22_000, "resolution": {"relative": {"millionths": 100_000}}, "invalid_repeats": 0,
                                "max_qps": plan.max_qps and -(-11 * plan.max_qps // 5), "lowest_qps": -(-SECOND // duration_ns)})
        while search.rate() is not None:
            trial = self.attempt(search.rate(), duration_ns)
            if trial["outcome"] == "failed":
                trial = self.attempt(search.rate(), duration_ns)
            search.observe("failed" if is_refused(trial) else trial["outcome"], trial["fault"])
            self.last = self.last if trial["outcome"] == "passed" else trial
        self.passed_qps = None if search.end["ended"] == "tester_fault" else search.passed
        return 5 * (self.passed_qps or 0) // 11


def counted(tests):
    """The rates of the self-tests that count."""
    rates, waiting, had_chance = [], None, False
    for test in tests:
        rate = test["certified_rate_qps"]
        if rate is None:
            if test["end"]["outcome"] != "invalid" or is_refused(test["end"]):
                rates, waiting, had_chance = [], None, False
            continue
        is_low = rate * 100 < max(rates, default=0) * 80
        if is_low and waiting is None and not had_chance:
            waiting = rate
            continue
        rates += [waiting] if is_low and waiting is not None else []
        had_chance, waiting = had_chance or waiting is not None and not is_low, None
        rates.append(rate)
    return rates


def percentile(values, percent):
    return sorted(values)[max(1, -(-len(values) * percent // 100)) - 1]


# Trials


def ns(seconds):
    return round(seconds * SECOND)


def shortfall(trial):
    return max(0, trial["queries_sent"] - trial["answers"]["valid"] - trial["undecided"])


def answered(trial):
    return sum(trial["answers"][key] for key in ("valid", "late", "wrong", "empty", "error", "truncated"))


def placed(trial):
    """Places of the losses by their evidence, and the loss that explains them all, if one does."""
    evidence, path, missing, late = trial["losses"]["evidence"], trial["path"], trial["answers"]["missing"], trial["answers"]["late"]
    is_exact = path is not None and path["lost"]["names"] == missing and not (trial["authority"] or {}).get("misbehaviour")
    unserved, served = (path["lost"]["unserved"], path["lost"]["served"]) if is_exact else (0, 0)
    found = list(evidence["found"])
    if unserved:
        source = {"host": "authority", "link": None, "counter": "questions without an answer", "count": unserved}
        found.append({"place": "authority", "kind": "lost", "source": source, "low": unserved, "high": None})
    found.sort(key=lambda loss: PLACES.index(loss["place"]))

    def bound(place, queries):
        if is_exact and place in ("to_dut", "dut_host"):
            return max(0, queries - unserved - served)
        return served if is_exact and place == "from_authority" else queries

    rest, slack, clogged, places = missing, 0, 0, []
    for loss in found:
        place, high = loss["place"], loss["high"]
        most = min(missing, bound(place, missing))
        low = min(loss["low"], rest, most)
        cost = loss["source"]["count"] * max(128, 2 * trial["rate_qps"]) if high is None else high
        rest -= low
        slack += max(low, cost if high is None else min(cost, bound(place, missing + evidence["hanging"]))) - low
        clogged += cost if high is None else 0
        places.append((place, low, max(low, min(cost, most)), loss["source"]))
    of_dut = max(0, rest - slack) if evidence["is_watched"] else 0
    at_sockets, undecided = min(of_dut, evidence["dut_drops"]), rest - of_dut
    not_valid = answered(trial) - trial["answers"]["valid"] - late
    exact = {"not_sent": evidence["not_sent"], "dut_sockets": at_sockets, "late": late, "not_valid": not_valid}
    places += [(place, queries, queries, None) for place, queries in exact.items()]
    places.append(("dut", of_dut - at_sockets, rest - at_sockets, None))
    places = sorted((place for place in places if place[2]), key=lambda place: PLACES.index(place[0]))
    open_at = {place for place, low, high, _ in places if high > low} | (set() if evidence["is_watched"] else {"to_dut", "from_dut"})
    is_explained = missing + late + not_valid > 0 and rest + evidence["hanging"] <= slack and late + not_valid <= clogged
    weight = lambda loss: (loss["kind"] != "held", loss["source"]["count"])
    return {
        "queries": evidence["not_sent"] + missing + late + not_valid, "undecided": undecided,
        "places": [dict(zip(("place", "low", "high", "source"), place)) for place in places],
        "between": sorted(open_at, key=PLACES.index) if undecided else [],
    }, max(reversed(found), key=weight, default=None) if is_explained else None


def disturbed(trial):
    """The figures of others who had the cores of DUT or authority, if that explains the losses."""
    bursts, span, machine, lost = trial["timing"]["catch_up"], trial["losses"].get("span"), trial["machine"], shortfall(trial)
    if not lost:
        return None
    lost += trial["losses"]["evidence"]["hanging"] - min(bursts["lost_in_bursts"], bursts["stalls"] * bursts["burst_queries_max"], lost)
    for name in ("dut", "authority"):
        rows = [row for row in machine["roles"] if row["role"] == name]
        if rows:
            row = max(rows, key=lambda row: row["run_delay_ns"])
            ranges = [part.split("-") for part in (row["cores"] or "0").split(",")]
            cores = sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)
            others_ns = min(row["foreign_ns"] or 0, row["run_delay_ns"])
            taken_ns = (row["steal_ns"] or 0) + max(others_ns, row["throttled_ns"] or 0)
            felt_ns = taken_ns // cores * 11
            is_short = span is not None and max(0, span["until_ns"] - span["from_ns"]) <= felt_ns
            limit_ns = int(trial["timing"]["limits"]["max_stolen_pct"] / 100 * (machine["span_ns"] * cores)) // (10 if is_short else 1)
            limit_ns = max(limit_ns, 20 * MS)
            if taken_ns > limit_ns and lost <= felt_ns * trial["rate_qps"] // SECOND:
                return {"role": name, "taken_ns": taken_ns, "limit_ns": limit_ns}
    pressure_ns, limit_ns = machine["pressure_ns"] or 0, machine["span_ns"] // 10
    is_crowded = trial.get("server_is_here") and not trial.get("policy") and pressure_ns > limit_ns
    return {"role": "dut", "taken_ns": pressure_ns, "limit_ns": limit_ns} if is_crowded else None


def fault_of(trial):
    """The first fault by the figures of a trial, without its cause."""
    timing, evidence, lost = trial["timing"], trial["losses"]["evidence"], shortfall(trial)
    limits, corrected, rate, bursts = timing["limits"], timing["self_correcting"], timing.get("rate_error"), timing["catch_up"]
    status, error, step_ns, not_sent = trial.get("authority_exit"), trial.get("error"), timing["clock_step_ns"], evidence["not_sent"]
    overflowed = ((trial["authority"] or {}).get("misbehaviour") or {}).get("overflowed")
    times = (trial["path"]["authority"] if trial["path"] else trial.get("authority_sampled")) or {"slow": 0, "max_ns": None, "limit_ns": 0}
    cause = placed(trial)[1] or {"kind": None, "place": None, "source": {"count": 0}}
    late_ns, max_ns, is_late = timing["lateness_ns_max"], limits["max_stall_ns"], lost and trial.get("certified") is not None
    stalls = [(late_ns, max_ns)]
    if corrected:
        overrun = [] if trial["ended_early"] else [(corrected["overrun_ns"], ns(trial["duration_s"]) // 100)]
        stalls = [(corrected["held_up_ns_max"], max_ns), (late_ns, 4 * SECOND), *overrun]
    rules = [
        ("authority_died", status is not None, {"status": status}), ("link", error is not None, {"error": error}),
        ("clock_step", abs(step_ns) > 10_000, {"step_ns": step_ns}),
    ]
    for clock in trial.get("clocks", []):
        host = {"host": clock["host"]}
        rules.append(("host_late", clock["late_ns"], host | {"late_ns": clock["late_ns"]}))
        rules.append(("host_clock", clock["bound_ns"] > MS, host | {"bound_ns": clock["bound_ns"], "limit_ns": MS}))
    rules += [
        ("network_loss", not_sent and evidence.get("refused_by"), evidence.get("refused_by")), ("not_sent", not_sent, {"queries": not_sent}),
        ("receive_drops", (cause["kind"], cause["place"]) == ("sockets", "measurer"), {"datagrams": cause["source"]["count"]}),
        ("authority_drops", cause["kind"] == "sockets", {"datagrams": cause["source"]["count"]}),
        ("network_loss", cause["kind"] == "lost", cause["source"]), ("network_delay", cause["kind"] == "held", cause["source"]),
        ("authority_overflow", overflowed, {"replies": overflowed}),
        *(("late_schedule", late > limit, {"lateness_ns": late, "limit_ns": limit}) for late, limit in stalls),
        ("rate_error", rate and not corrected and abs(rate["sent"] - rate["due"]) > rate["allowed"], rate),
        ("catch_up_burst", lost and bursts["lost_in_bursts"] == lost and not bursts["lost_beyond_bursts"], {
            "stall_ns": bursts["stall_ns_max"], "burst_queries": bursts["burst_queries_max"], "limit_queries": limits["max_burst_queries"],
            "rate_qps": trial["rate_qps"], "lost": lost}),
        ("authority_slow", is_late and times["slow"] and times["max_ns"] is not None, {
            "answers": times["slow"], "slowest_ns": times["max_ns"], "limit_ns": times["limit_ns"]}),
        ("disturbed", disturbed(trial), disturbed(trial)),
    ]
    return "interrupted" if trial.get("interrupted") else next(({name: figures} for name, applies, figures in rules if applies), None)


def recount(trial):
    """Whether the figures of a trial fit each other, and its verdict follows from them."""
    answers, losses, rtt, path, counts, timing = (trial[key] for key in "answers losses rtt_ns path authority timing".split())
    sent, not_sent, unsent = trial["queries_sent"], losses["evidence"]["not_sent"], trial["queries_due"] - trial["queries_sent"]
    at_sockets = sum(loss["source"]["count"] for loss in losses["evidence"]["found"] if loss["kind"] == "sockets")
    fault, is_early, lost, replied = fault_of(trial), trial["ended_early"], shortfall(trial), answered(trial)
    outcome, told = "invalid" if fault else "failed" if lost or is_early else "passed", trial["fault"]
    if isinstance(told, dict):
        told = {kind: {key: value for key, value in figures.items() if key != "cause"} for kind, figures in told.items()}
    same("result.fault", told, fault)
    same_keys("result.", trial, {
        "form": "trial/2", "queries_due": trial["rate_qps"] * ns(trial["duration_s"]) // SECOND,
        "queries_sent": replied + answers["missing"] + trial["undecided"],
        "outcome": outcome,
        "shortfall": lost if outcome == "failed" else 0,
    })
    same_keys("result.losses.", losses, placed(trial)[0])
    percentiles = [trial["rtt_percentiles_ns"], trial["latency_percentiles_ns"], path["dut_only_percentiles_ns"] if path else []]
    for found in [[pair[k] for pair in pairs] for pairs in percentiles for k in (0, 1)] + [
            [part[key] for key in keys] for part, keys in (
                (timing, ["lateness_ns_p50", "lateness_ns_p99", "lateness_ns_p999", "lateness_ns_max"]),
                (rtt, ["p50", "p99", "p999", "max"]), (path["authority"] if path else {}, ["p50_ns", "p99_ns", "max_ns"] if path else []))]:
        known = [value for value in found if value is not None]
        same("result: percentiles", known, sorted(known))
    for percent, value in trial["rtt_percentiles_ns"]:
        same("result.rtt_percentiles_ns", value, rtt.get({50: "p50", 99: "p99", 100: "max"}.get(percent), value))
    longest_ns, timeout_ns, series = rtt["max"] or 0, ns(trial["timeout_s"]), trial.get("series")
    lists = [(series["sent"], sent), (series["lost"], lost)] if series else []
    if counts:
        asked = sum(counts[key] for key in ("aaaa", "a", "other"))
        replies = sum(counts[key] for key in ("answered", "nodata", "nxdomain", "refused"))
        lists += [([share["questions"] for share in trial["authorities"]], asked)] if trial.get("authorities") else []
        need(replies <= asked, "result.authority", replies, f"at most {asked} answers")
    if path:
        ways, gone = path["answered"], path["lost"]
        lists += [([ways[key] for key in ways if key not in ("names", "again")], ways["names"])]
        lists += [([gone[key] for key in ("unasked", "unserved", "served")], gone["names"])]
        fits = ways["names"] <= answers["valid"] and gone["names"] <= answers["missing"] and ways["names"] + gone["names"] <= path["fresh_names"]
        need(fits and path["fresh_names"] <= sent, "result.path", [ways["names"], gone["names"], path["fresh_names"]], "names that were asked for")
    for parts, whole in lists:
        same("result: sum of " + str(parts[:9]), sum(parts), whole)
    for field, fits in {
        "losses.evidence.not_sent": not_sent == unsent or is_early and 0 <= not_sent < unsent,
        "undecided": is_early or not trial["undecided"], "losses.evidence.hanging": losses["evidence"]["hanging"] <= trial["undecided"],
        "ended_early": not is_early or outcome == "invalid" or lost > 0, "tester_drops": trial["tester_drops"] <= at_sockets,
        "invalid_because": (trial["invalid_because"] is None) == (fault is None), "rtt_ns.max": (rtt["max"] is None) == (replied == 0),
        "rtt_ns.max with all answers in time": answers["valid"] < replied or longest_ns - longest_ns // 1000 <= timeout_ns,
        "rtt_ns.max with late answers": not answers["late"] or longest_ns > timeout_ns,
    }.items():
        need(fits, f"result.{field}", "a value", "another by the other figures")


# Journals


class Task:
    def __init__(self, before, spec, base_qps):
        self.trials, self.earlier, self.disturbed = [], before.earlier + before.trials if before else [], before.disturbed if before else 0
        self.search, self.base_qps, self.steps, self.invalid, self.took_ns = spec and (Goals if spec.get("goals") else Search)(spec), base_qps, 0, 0, 0
        self.end, self.is_abandoned = None, False

    def is_open(self, attempts):
        has_end = self.end and not (self.search and self.search.end["ended"] == "tester_fault")
        return not self.is_abandoned and not has_end and self.disturbed < attempts

    def goes_on(self, ceiling_qps):
        """Whether it continues with this certificate."""
        own = self.search and self.search.spec["ceiling_qps"]
        return not self.search or self.search.end or (own == ceiling_qps if None in (own, ceiling_qps) else own <= ceiling_qps)


class Campaign:
    """What the lines of a journal say so far, and whether the next one follows."""

    def __init__(self, plan):
        self.plan, self.sessions, self.self_tests, self.facts, self.tasks = plan, [], [], {}, {}
        self.under_way = self.in_force = self.died_in = self.at_work = None
        self.is_complete, self.now_ms, self.idle_ms = False, 0, 0

    def apply(self, kind, record, now_ms):
        need(not self.is_complete and kind != "campaign" and (self.at_work is not None or kind == "session"), kind, "this record", "another")
        self.now_ms = now_ms
        getattr(self, kind)(record)
        if kind not in ("variant", "started"):
            self.idle_ms = now_ms

    def session(self, session):
        self.sessions.append(session)
        self.at_work, self.in_force, self.died_in = set(), None, None

    def stopped(self, _):
        self.at_work = None

    def complete(self, _):
        same("complete", self.next_task(), None)
        self.is_complete = True

    def variant(self, facts):
        before = self.facts.get(facts["variant"], facts)
        keys = ["server", "pref64", "cpus", "files_sha256"] + (["command", "environment"] if before["command"] and facts["command"] else [])
        keys += [key for key in ("program_sha256",) if before[key] and facts[key]]
        same_keys("variant.", facts, {key: before[key] for key in keys})
        self.facts[facts["variant"]] = facts
        self.at_work.add(facts["variant"])

    def next_task(self):
        is_open = lambda task, attempts: task not in self.tasks or self.tasks[task].is_open(attempts)
        return self.under_way or next((task for attempts in (1, 3) for task in self.plan.tasks if is_open(task, attempts)), None)

    def named(self, record):
        """The task of a record, what is known of it, and its point."""
        (kind, where), = record["task"].items()
        task = kind, where["point"], where.get("run", 0)
        need(task in self.plan.tasks, "task", record["task"], "a task of the plan")
        return task, self.tasks.get(task), self.plan.points[where["point"]]

    def ends(self, number):
        searches = [self.tasks.get(("search", number, run)) for run in range(1, self.plan.runs + 1)]
        return [search.end for search in searches if search and search.end]

    def started(self, begun):
        task, known, point = self.named(begun)
        spec, is_search = begun["search"], task[0] in ("search", "goals")
        rates = [end["rate_qps"] for end in self.ends(point.number) if end["rate_qps"] is not None]
        if self.under_way:
            is_again = self.in_force is None and not known.goes_on(spec and spec["ceiling_qps"])
            need(self.under_way == task and is_again, "started.task", task, f"{self.under_way} to go on")
        same("started.task", task, self.next_task())
        same("started.search", spec is not None, is_search)
        ceilings = self.ceilings(point)
        if is_search:
            need(spec["ceiling_qps"] in ceilings, "started.search.ceiling_qps", spec["ceiling_qps"], f"one of {ceilings}")
            goals = self.plan.goals if task[0] == "goals" else []
            same("started.search.goals", [Goal(text).known for text in spec.get("goals", [])], [goal.known for goal in goals])
            due = self.plan.search(point, spec["ceiling_qps"], rates, goals)
            same_keys("started.search.", {"low_load_qps": None} | spec, {"low_load_qps": None} | due)
        same("started.base_rate_qps", begun["base_rate_qps"], None if is_search or not rates else int(statistics.median(rates)))
        self.tasks[task] = Task(known, spec, begun["base_rate_qps"])
        self.under_way, self.in_force = task, [spec["ceiling_qps"]] if is_search else ceilings

    def next_rate(self, task):
        known = self.tasks[task]
        if known.search:
            return known.search.rate()
        return next(iter(self.plan.rates(task[0], known.base_qps or 0)[known.steps:]), None)

    def trial(self, record):
        task, known, point = self.named(record)
        trial, variant = record["result"], point.variant
        same("trial.task", task, self.under_way)
        need(self.died_in != task, "trial.task", task, "none, because the DUT ended")
        self.in_force = self.in_force or self.ceilings(point)
        need(any(known.goes_on(ceiling) for ceiling in self.in_force), "trial.task", task, f"a restart: certified to {self.in_force}")
        same("trial.number", record["number"], len(known.trials) + 1)
        same("trial.result.rate_qps", trial["rate_qps"], self.next_rate(task))
        need(variant["number"] in self.at_work, "trial.task", task, "one whose servers this process started")
        recount(trial)
        is_whole = trial["outcome"] != "invalid" and not trial["ended_early"]
        least_ns = (trial["queries_due"] - 1) * SECOND // trial["rate_qps"] if is_whole else 0
        need(record["took_ns"] >= least_ns, "trial.took_ns", record["took_ns"], f"at least {least_ns}")
        length_ns = known.search.next()[1] if task[0] == "goals" else point.duration_ns
        self.planned(trial, point, length_ns, point.result_timeout_ns)
        may_stop = variant["is_authority"] or task[0] == "search" and self.plan.stop_early
        need(may_stop or not trial["ended_early"] or trial["outcome"] == "invalid", "result.ended_early", True, False)
        same("result.timing.self_correcting", trial["timing"]["self_correcting"] is not None, variant["pacing"] == "self-correcting")
        marks = [None if variant["is_authority"] else ceiling is not None and trial["rate_qps"] <= ceiling for ceiling in self.in_force]
        need(trial.get("certified") in marks, "result.certified", trial.get("certified"), f"one of {marks}")
        self.died_in = task if trial["dut_exit"] is not None and known.search else None
        known.trials.append(record)
        known.took_ns += record["took_ns"]
        is_repeated = trial["outcome"] == "invalid" and task[0] == "overload" and known.invalid < 3
        known.steps, known.invalid = (known.steps, known.invalid + 1) if is_repeated else (known.steps + 1, 0)
        if known.search:
            known.search.observe(trial["outcome"], trial["fault"], trial)

    def finished(self, end):
        task, known, _ = self.named(end)
        same("finished.task", task, self.under_way)
        need(self.died_in != task, "finished.task", task, "none, because the DUT ended")
        same("finished before the trial at", self.next_rate(task), None)
        search, is_disturbed = known.search, bool(known.search) and known.search.end["ended"] == "tester_fault"
        same_keys("finished.", end, {"end": search and search.end, "rate_qps": None if is_disturbed or not search else search.passed,
                                     "failed_qps": search and search.failed, "took_ns": known.took_ns})
        same("finished.goals", end.get("goals", []), search.results() if task[0] == "goals" else [])
        known.end, known.disturbed, self.under_way = end, known.disturbed + is_disturbed, None

    def abandoned(self, record):
        task, known, _ = self.named(record)
        same("abandoned.task", task, self.next_task())
        self.tasks[task] = known or Task(None, None, None)
        self.tasks[task].is_abandoned, self.under_way, self.died_in = True, None, None

    def self_test(self, test):
        conditions = test["conditions"]
        same_keys("self_test.conditions.", conditions, self.here())
        points = [point for point in self.plan.points if self.fits(conditions, point)]
        need(points, "self_test.conditions", {key: conditions[key] for key in ("cell", "duration_ns", "timeout_ns", "lab")}, "a point")
        for trial in test["trials"]:
            same("self_test.trials: certified, self_correcting", [trial.get("certified"), trial["timing"]["self_correcting"]], [None, None])
            recount(trial)
            self.planned(trial, points[0], ns(trial["duration_s"]), conditions["timeout_ns"] // 4)
        alike = [earlier for _, earlier in self.self_tests if earlier["conditions"] == conditions]
        near = sorted({earlier["certified_rate_qps"] for earlier in alike} - {None})
        for near_qps in [*near, None]:
            try:
                again = SelfTest(self.plan, test, near_qps)
                same_keys("self_test.", test, {"passed_rate_qps": again.passed_qps, "certified_rate_qps": again.certified_qps})
                same_keys("self_test.end.", test["end"], {key: again.last[key] for key in ("outcome", "fault", "shortfall")})
                break
            except Wrong:
                if near_qps is None:
                    raise
        self.self_tests.append((self.now_ms, test))

    def fits(self, conditions, point):
        is_point = all(conditions[key] == getattr(point, key) for key in ("cell", "duration_ns", "timeout_ns"))
        return is_point and not point.variant["is_authority"] and (conditions["lab"] == "") == point.variant["is_server"]

    def here(self):
        """What the certificates of this process have in common."""
        session = self.sessions[-1]
        return {key: session["environment"].get(key, session.get(key)) for key in ("boot_id", "kernel", "tester", "tester_sha256")}

    def ceilings(self, point):
        """The certificates that can have held when a task began."""
        if not point.variant["needs"]:
            return [None]
        facts = self.facts.get(point.variant["number"], {"cpus": []})
        here = self.here() | {"cpus": [pair for pair in facts["cpus"] if pair[0] != "DUT"]}
        at_limit = sum(end["end"]["ended"] == "limited_by_tester" for end in self.ends(point.number))
        wanted, (first, last) = self.plan.self_tests + min(at_limit, self.plan.self_tests), sorted((self.idle_ms, self.now_ms))
        expiries = [at + HALF_A_DAY_MS for at, _ in self.self_tests]
        looks, found = [first, last] + [at for at in expiries if first <= at < last], set()
        for _, test in self.self_tests:
            conditions = test["conditions"]
            if self.fits(conditions, point) and conditions | here == conditions:
                for look in looks:
                    rates = counted(t for at, t in self.self_tests if t["conditions"] == conditions and look - at <= HALF_A_DAY_MS)
                    found.add(percentile(rates, 1) if len(rates) >= wanted else None)
        return sorted(found - {None}) or [None]

    def planned(self, trial, point, duration_ns, timeout_ns):
        """Whether a trial is one of the plan."""
        variant, has_dut = point.variant, trial.get("certified") is not None
        found = [ns(trial["duration_s"]), ns(trial["timeout_s"]), trial["timing"]["limits"]]
        same("result: duration, timeout, limits", found, [duration_ns, timeout_ns, self.plan.limits])
        due, kind = trial["queries_due"], variant["authority"]
        same("result.names.fresh", trial["names"]["fresh"], due - due * point.cached // 10**6)
        for key, is_due in {
            "authority": kind in ("built-in", "driver"), "path": kind == "built-in", "authority_sampled": has_dut and kind == "program",
            "achieved": has_dut and trial["authority"] is not None, "resources": has_dut and kind != "server",
        }.items():
            need(not is_due or trial.get(key) is not None, f"result.{key}", "nothing", "a value")
        hosts, roles = sorted(clock["host"] for clock in trial.get("clocks", [])), variant["roles"]
        same("result.clocks", hosts, sorted(roles))
        for row in trial["machine"]["roles"]:
            fits = row["role"] in roles.get(row["host"], ()) if "host" in row else not roles
            need(fits, "result.machine.roles", [row["role"], row.get("host")], "a host and its role")


def read_journal(path):
    """The campaign in a journal, its first record, and the last seal."""
    octets, seal, campaign, first = path.read_bytes(), b"", None, None
    if not octets.endswith(b"\n"):
        raise Unreadable(f"{path}: line {octets.count(10) + 1}: it was cut off")
    schema = json.loads((SCHEMAS / "journal.schema.json").read_text())
    for count, line in enumerate(octets[:-1].split(b"\n")):
        where = f"{path}: line {count + 1}"
        try:
            seal, line = hashlib.sha256(seal + line[:-75]).hexdigest().encode(), line + b"\n"
            same("seal", line[-76:].decode(errors="replace"), f',"seal":"{seal.decode()}"}}\n')
            value = parse(line[:-76] + b"}")
            same("keys", list(value), ["number", "at_unix_ms", "record"])
            record = value["record"]
            kind, inner = (record, None) if isinstance(record, str) else next(iter(record.items()))
            where += f": record {kind}"
            if kind not in KINDS:
                raise Unreadable(f"{where}: a kind of record that is not known")
            if count == 0:
                same("record", kind, "campaign")
                if inner.get("format") != FORMAT:
                    raise Unreadable(f"{where}: format {inner.get('format')} of {inner.get('tester')}, and this program reads {FORMAT}")
            same("number", value["number"], count)
            conform(value, schema, schema)
            if count:
                campaign.apply(kind, inner, value["at_unix_ms"])
                continue
            first = inner
            same("campaign.plan_sha256", first["plan_sha256"], hashlib.sha256(first["plan"].encode()).hexdigest())
            campaign = Campaign(Plan(tomllib.loads(first["plan"])))
        except Wrong as error:
            raise Wrong(f"{where}: {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise Wrong(f"{where}: found no sense, {type(error).__name__} {error}") from None
    return campaign, first, seal.decode()


# Reports


def check_report(folder, campaign, first, seal):
    lines = [line.partition("  ") for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.startswith("#")]
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    same("SHA256SUMS", sorted(name for *_, name in lines), files)
    for digest, _, name in lines:
        same(f"SHA256SUMS: {name}", digest, hashlib.sha256((folder / name).read_bytes()).hexdigest())
    results, schema = parse((folder / "results.json").read_bytes()), json.loads((SCHEMAS / "results.schema.json").read_text())
    if results.get("format") != FORMAT:
        raise Unreadable(f"{folder}: results.json has format {results.get('format')}, and this program reads {FORMAT}")
    conform(results, schema, schema, "results.json: ")
    tests = [{key: test[key] for key in ("passed_rate_qps", "certified_rate_qps", "conditions")} for _, test in campaign.self_tests]
    lengths = [len(results[key]) for key in ("certificates", "points", "sessions")]
    same("results.json: certificates, points, sessions", lengths, [len(tests), len(campaign.plan.points), len(campaign.sessions)])
    same_keys("results.json: ", results, {
        "tester": first["tester"], "plan_sha256": first["plan_sha256"], "journal_seal": seal, "complete": campaign.is_complete})
    for k, (found, test) in enumerate(zip(results["certificates"], tests)):
        same_keys(f"results.json: certificates[{k}].", found, test)
    for point, found in zip(campaign.plan.points, results["points"]):
        check_point(campaign, point, found, f"results.json: points[{point.number}].")


def check_point(campaign, point, found, at):
    tasks = [campaign.tasks.get(("search", point.number, run)) for run in range(1, campaign.plan.runs + 1)]
    same(at + "runs", len(found["runs"]), len(tasks))
    begun = [task for task in tasks if task]
    ceilings = [task.search.spec["ceiling_qps"] for task in begun if task.search]
    lowest_qps = min(ceilings) if ceilings and None not in ceilings and not point.variant["is_authority"] else None
    ends = [run_of(task) for task in tasks]
    has_rate = any(rate is not None and ended != "tester_fault" for ended, rate, _ in ends)
    ends = [(ended, None if has_rate and ended == "tester_fault" else rate, failed) for ended, rate, failed in ends]
    for k, (task, run, (ended, rate, failed)) in enumerate(zip(tasks, found["runs"], ends)):
        trials, certified = [record["result"] for record in task.trials] if task else [], None
        if rate is not None and not point.variant["is_authority"]:
            mark = [trial["certified"] for trial in trials if trial["outcome"] == "passed" and trial["rate_qps"] == rate][-1]
            certified = mark is not False and lowest_qps is not None and rate <= lowest_qps
        same_keys(f"{at}runs[{k}].", run, {"run": k + 1, "ended": ended, "rate_qps": rate, "failed_qps": failed, "certified": certified})
        steps = [[step[key] for key in ("rate_qps", "certified", "outcome", "shortfall")] for step in run["trials"]]
        same(f"{at}runs[{k}].trials", steps, [[t["rate_qps"], t.get("certified"), t["outcome"], t["shortfall"]] for t in trials])
    rates, marks = [rate for _, rate, _ in ends if rate is not None], [run["certified"] for run in found["runs"]]
    marks = [mark for mark in marks if mark is not None]
    limited = [rate for ended, rate, _ in ends if ended.startswith("limited") or ended == "tester_fault"]
    same_keys(at, found, {
        "point": point.number, "variant": point.variant["number"], "aaaa_pct": point.aaaa / 10**4, "cached_pct": point.cached / 10**4,
        "duration_s": point.duration_ns / SECOND, "certified_rate_qps": lowest_qps, "certified": all(marks) if marks else None,
        "lower_bound": any(rate is not None for rate in limited), "summary": found["summary"] if rates else None,
    })
    if rates:
        middle, mean = statistics.median(rates), sum(rates) / len(rates)
        deviation = math.sqrt(sum((rate - mean) ** 2 for rate in rates) / max(1, len(rates) - 1))
        same_keys(at + "summary.", found["summary"], {
            "runs": len(rates), "median": middle, "average": mean, "p1": percentile(rates, 1), "p99": percentile(rates, 99),
            "standard_deviation": deviation, "margin_of_error_999": 3.290526731491896 * deviation / math.sqrt(len(rates)),
            "median_absolute_deviation": 1.4826 * statistics.median(abs(rate - middle) for rate in rates),
            "dispersion_pct": (max(rates) - min(rates)) / middle * 100, "calculated": middle / (1 + found["timeout_s"] / found["duration_s"]),
        })


def run_of(task):
    """How a run ended, the rate that passed and the one that failed."""
    if task is None or task.is_abandoned or not task.end:
        return "abandoned" if task and task.is_abandoned else "unfinished", None, None
    return task.search.end["ended"], task.search.passed, task.end["failed_qps"]


def signer(journal, seal, allowed):
    """The name of the allowed signer of a journal that ends with this seal."""
    signature = journal.with_name("journal.jsonl.sig")
    signature.stat()

    def openssh(what, *options):
        command = ["ssh-keygen", "-Y", what, "-n", "dns64bench", "-s", signature, "-f", allowed, *options]
        return subprocess.run(command, input=seal, capture_output=True, text=True)

    names = openssh("find-principals").stdout.splitlines()
    found = [name for name in names if openssh("verify", "-I", name).returncode == 0]
    need(found, "signature", "one of other lines or another key", f"one of this journal by a key in {allowed}")
    return found[0]


def verify(path, allowed):
    journal = path / "journal.jsonl" if path.is_dir() else path
    campaign, first, seal = read_journal(journal)
    if path.is_dir():
        copy = path / "plan.toml"
        need(not copy.exists() or copy.read_bytes() == first["plan"].encode(), str(copy), "another text", "the plan of the journal")
        check_report(path / "report", campaign, first, seal)
    signed = f", signed by {signer(journal, seal, allowed)}" if allowed else ""
    trials = sum(len(task.trials + task.earlier) for task in campaign.tasks.values())
    return f"{trials} trials, {len(campaign.self_tests)} self-tests, {'' if campaign.is_complete else 'not '}complete, seal {seal}{signed}"


def main():
    parser = argparse.ArgumentParser(description="Verify campaigns of dns64bench by docs/verification.md.")
    parser.add_argument("campaigns", nargs="+", type=Path, metavar="DIR|JOURNAL", help="campaign with its report, or a journal alone")
    parser.add_argument("--allowed-signers", type=Path, metavar="FILE", help="check the signatures, see ssh-keygen(1)")
    arguments, code = parser.parse_args(), 0
    for path in arguments.campaigns:
        try:
            print(f"{path}: right: {verify(path, arguments.allowed_signers)}")
        except (Wrong, LookupError, TypeError, ValueError, AttributeError) as error:
            print(f"{path}: wrong: {error}")
            code = max(code, 1)
        except (Unreadable, OSError) as error:
            print(f"{path}: cannot be read: {error}")
            code = 2
    return code


if __name__ == "__main__":
    sys.exit(main())
