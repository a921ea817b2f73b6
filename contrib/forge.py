#!/usr/bin/env python3
"""Makes forgeries of honest campaigns, and checks that contrib/verify.py accepts the honest ones and refuses the others.

    contrib/forge.py OUT CAMPAIGN...

Writes a directory OUT/CAMPAIGN.NAME for each forgery, of the first campaign in which it can be made. All are sealed again after the change, as by somebody who has no
key of the signer, unless their name says otherwise. Exit code 1 if the verifier is wrong about one of them.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

sys.dont_write_bytecode = True
import verify


def sealed(records):
    """The lines of a journal with these records. A record that is text is taken as it is."""
    seal, lines = b"", []
    for number, (at, record) in enumerate(records):
        record = record if isinstance(record, str) and record[0] == "{" else json.dumps(record, separators=(",", ":"), ensure_ascii=False)
        line = f'{{"number":{number},"at_unix_ms":{at},"record":{record}'.encode()
        seal = hashlib.sha256(seal + line).hexdigest().encode()
        lines.append(line + b',"seal":"' + seal + b'"}\n')
    return lines


def kind_of(record):
    return record if isinstance(record, str) else next(iter(record))


class Absent(Exception):
    """This campaign has no such record."""


def place(records, kind, where=lambda record: True, last=False):
    found = [k for k, (_, record) in enumerate(records) if kind_of(record) == kind and where(record.get(kind) if isinstance(record, dict) else None)]
    if not found:
        raise Absent
    return found[-1 if last else 0]


def changed(kind, change, where=lambda record: True, last=False):
    """The first record of a kind, or the last, is changed."""
    def forge(records):
        record = records[place(records, kind, where, last)][1][kind]
        before = json.dumps(record)
        try:
            change(record)
        except (KeyError, TypeError, IndexError):
            raise Absent from None
        if json.dumps(record) == before:
            raise Absent
    return forge


def with_key(path, value):
    """Sets a key; a function gets what was there."""
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    def change(record):
        for key in way:
            record = record[key]
        record[last] = value(record[last]) if callable(value) else value
    return change


def without(path):
    *way, last = path.split(".")
    def change(record):
        for key in way:
            record = record[key]
        del record[last]
    return change


def outcome(word):
    return lambda record: record["result"]["outcome"] == word


def verdict(word, fault=None, shortfall=0):
    def change(record):
        record["result"].update(outcome=word, fault=fault, shortfall=shortfall, invalid_because=fault and "because")
    return change


def losses_moved(record):
    """Queries without an answer become answered ones; the other figures stay."""
    answers = record["result"]["answers"]
    answers["valid"], answers["missing"], answers["late"] = answers["valid"] + answers["missing"] + answers["late"], 0, 0
    verdict("passed")(record)


def removed(kind, where=lambda record: True, last=False):
    return lambda records: records.pop(place(records, kind, where, last))


def twice(kind, where=lambda record: True):
    def forge(records):
        k = place(records, kind, where)
        records.insert(k, records[k])
    return forge


def swapped(kind, other):
    """The first record of a kind changes places with the first one of the other, which is before it."""
    def forge(records):
        k, earlier = place(records, kind), place(records, other)
        k += kind == other and kind_of(records[k + 1][1]) == kind
        if earlier >= k:
            raise Absent
        records[earlier], records[k] = records[k], records[earlier]
    return forge


def inserted(kind, record):
    """A record is added before the first of a kind."""
    return lambda records: records.insert(place(records, kind), (records[-1][0], record))


def plan(old, new):
    """Another plan, with its hash."""
    def change(record):
        record["plan"] = record["plan"].replace(old, new, 1)
        record["plan_sha256"] = hashlib.sha256(record["plan"].encode()).hexdigest()
    return changed("campaign", change)


def narrowed(record):
    """An interval that was too wide is narrow enough."""
    for end in (record["end"], record["goals"][0]):
        end["ended"] = "found"
        del end["trials"]


def raw(kind, old, new):
    """The text of a record is changed, so that it is no JSON or other JSON."""
    def forge(records):
        k = place(records, kind)
        found = json.dumps(records[k][1], separators=(",", ":"), ensure_ascii=False)
        if old not in found:
            raise Absent
        records[k] = records[k][0], found.replace(old, new, 1)
    return forge


add = lambda number: lambda value: value + number
found = lambda record: (record["end"] or {}).get("ended") == "found"
is_search = lambda record: record["search"] is not None
of_goals = lambda record: "goals" in record["task"]
of_interval = lambda record: of_goals(record) and record["goals"][0]["goal"].startswith("interval,")
is_wide = lambda record: of_interval(record) and record["goals"][0].get("ended") == "too_wide"
begins_with_interval = lambda record: of_goals(record) and record["search"]["goals"][0].startswith("interval,")

JOURNALS = {
    # Results of goals, and what they follow from.
    "goal's lower bound": changed("finished", with_key("goals.0.lower_qps", add(1)), of_goals),
    "goal's upper bound": changed("finished", with_key("goals.0.upper_qps", add(1)), of_goals),
    "goal's throughput": changed("finished", with_key("goals.0.throughput_qps", add(1)), of_goals),
    "goal's end": changed("finished", with_key("goals.0.ended", "nothing_passes"), of_goals),
    "goal without a result": changed("finished", lambda record: record["goals"].pop(), of_goals),
    "another goal": changed("started", with_key("search.goals.0", lambda text: text.replace("loss=0", "loss=1")), of_goals),
    "goal's trial removed": removed("trial", of_goals), "goal's trial of another length": changed("trial", with_key("result.duration_s", 9.0), of_goals),
    "interval's lower end": changed("finished", with_key("goals.0.lower_qps", add(1)), of_interval),
    "interval's upper end": changed("finished", with_key("goals.0.upper_qps", add(-1)), of_interval),
    "interval's rate": changed("finished", with_key("goals.0.throughput_qps", add(1)), of_interval),
    "interval called narrow": changed("finished", narrowed, is_wide), "interval of fewer trials": changed("finished", with_key("goals.0.trials", add(-1)), is_wide),
    "interval of another width": changed("started", with_key("search.goals.0", lambda text: text.replace("width=", "width=1")), begins_with_interval),
    "interval's trial removed": lambda records: records.pop(place(records, "finished", of_interval) - 1),
    # Each kind of record removed, added, repeated, moved.
    "campaign removed": removed("campaign"), "campaign twice": twice("campaign"), "session removed": removed("session"),
    "self-test removed": removed("self_test"), "variant removed": removed("variant"), "start removed": removed("started"),
    "start twice": twice("started"), "rate at low load": changed("started", with_key("search.low_load_qps", add(1)), is_search),
    "no rate at low load": changed("started", without("search.low_load_qps"), is_search), "trial removed": removed("trial"), "last trial removed": removed("trial", last=True),
    "failed trial removed": removed("trial", outcome("failed")), "invalid trial removed": removed("trial", outcome("invalid")),
    "trial twice": twice("trial"), "failed trial twice": twice("trial", outcome("failed")), "end removed": removed("finished"),
    "end twice": twice("finished"), "complete early": inserted("finished", "complete"), "complete twice": twice("complete"),
    "record after the end": lambda records: records.append(records[-2]) if kind_of(records[-1][1]) == "complete" else removed("none")(records),
    "abandoned twice": twice("abandoned"), "abandoned out of turn": inserted("started", {"abandoned": {"task": {"search": {"point": 0, "run": 2}}, "reason": "x"}}),
    "trial before its start": swapped("trial", "started"), "end before its trial": swapped("finished", "trial"),
    "start before its certificate": swapped("started", "self_test"), "trials in another order": swapped("trial", "trial"),
    "stopped while it works": inserted("trial", {"stopped": {"reason": "x"}}),
    # The plan.
    "plan without its hash": changed("campaign", with_key("plan", add("\n"))), "hash of another plan": changed("campaign", with_key("plan_sha256", "0" * 64)),
    "plan with a finer resolution": plan("resolution = \"", "resolution = \"0."), "plan with more runs": plan("runs = ", "runs = 1"),
    "plan with longer trials": plan("duration = \"", "duration = \"1"), "plan with another start": plan("start-rate = \"", "start-rate = \"1"),
    # Certificates.
    "certificate raised": changed("self_test", with_key("certified_rate_qps", add(1))), "self-test rate raised": changed("self_test", with_key("passed_rate_qps", add(1))),
    "self-test of another cell": changed("self_test", with_key("conditions.cell", "AAAA 1%, cached 1%")),
    "self-test of another machine": changed("self_test", with_key("conditions.boot_id", "other")),
    "self-test of another program": changed("self_test", with_key("conditions.tester_sha256", "0" * 64)),
    "self-test with a longer timeout": changed("self_test", with_key("conditions.timeout_ns", lambda ns: 2 * ns)),
    "trial of a self-test removed": changed("self_test", lambda record: record["trials"].pop()),
    "trial of a self-test twice": changed("self_test", lambda record: record["trials"].append(record["trials"][-1])),
    "self-test that lost a query": changed("self_test", with_key("trials.0.answers.valid", add(-1))),
    "self-test at another rate": changed("self_test", with_key("trials.0.rate_qps", add(1))),
    "self-test with an end of its own": changed("self_test", with_key("end.outcome", "failed")),
    "self-test for a DUT": changed("self_test", with_key("trials.0.certified", True)),
    "trial beyond its certificate": changed("trial", with_key("result.certified", lambda is_certified: not is_certified), lambda record: record["result"].get("certified") is not None),
    # Facts of the servers.
    "variant that the plan has not": changed("variant", with_key("variant", 99)),
    "machine of another boot": lambda records: place(records, "self_test") and changed("session", with_key("environment.boot_id", "other"))(records),
    # How a search chooses its rates.
    **{f"start with another {key}": changed("started", with_key(f"search.{key}", value), is_search) for key, value in {
        "start_qps": add(1), "ceiling_qps": lambda qps: (qps or 0) + 1, "max_qps": lambda qps: (qps or 0) + 1, "lowest_qps": add(1), "invalid_repeats": add(1),
        "first_step_qps": lambda qps: (qps or 0) + 1, "fixed_range_qps": lambda qps: (qps or 0) + 1, "resolution": {"absolute": {"qps": 7}}}.items()},
    "start of another run": changed("started", with_key("task.search.run", add(1)), is_search),
    "base of an overload curve": changed("started", with_key("base_rate_qps", add(1)), lambda record: record["base_rate_qps"]),
    # Verdicts.
    "failure called a pass": changed("trial", verdict("passed"), outcome("failed")), "pass called a failure": changed("trial", verdict("failed", None, 1), outcome("passed")),
    "failure called a disturbance": changed("trial", verdict("invalid", {"not_sent": {"queries": 1}}), outcome("failed")),
    "disturbance called a failure": changed("trial", verdict("failed", None, 1), outcome("invalid")),
    "disturbance called a pass": changed("trial", verdict("passed"), outcome("invalid")),
    "failure with a smaller shortfall": changed("trial", with_key("result.shortfall", add(-1)), outcome("failed")),
    "failure with its losses moved": changed("trial", losses_moved, outcome("failed")),
    "disturbance with another fault": changed("trial", with_key("result.fault", {"link": {"error": "x"}}), outcome("invalid")),
    "pass of an interrupted trial": changed("trial", lambda record: record["result"].update(interrupted=True), outcome("passed")),
    "pass although the sender was late": changed("trial", with_key("result.timing.lateness_ns_max", 10**9), outcome("passed")),
    "pass although the clock was set": changed("trial", with_key("result.timing.clock_step_ns", 10**9), outcome("passed")),
    "pass although the authority ended": changed("trial", lambda record: record["result"].update(authority_exit="signal 9"), outcome("passed")),
    "limits that excuse less": changed("trial", with_key("result.timing.limits.max_stall_ns", add(1))),
    # Counts and figures of a trial.
    **{f"trial with another {key}": changed("trial", with_key(f"result.{key}", value), outcome("passed")) for key, value in {
        "rate_qps": add(1), "queries_due": add(1), "queries_sent": add(-1), "answers.valid": add(1), "answers.missing": add(1), "answers.late": add(1),
        "answers.wrong": add(1), "undecided": add(1), "ended_early": True, "duration_s": lambda s: 2 * s, "timeout_s": lambda s: 2 * s,
        "losses.queries": add(1), "losses.undecided": add(1), "losses.evidence.not_sent": add(1), "tester_drops": add(1), "rtt_ns.max": 10**12, "rtt_ns.p50": 10**12,
        "rtt_ns.p99": 0, "names.fresh": add(-1), "authority.nodata": add(10**6), "path.answered.names": add(1), "path.lost.served": add(1), "path.fresh_names": add(10**6),
        "form": "trial/1", "timing.lateness_ns_p99": 10**8}.items()},
    "trial with another number": changed("trial", with_key("number", add(1))), "trial of another run": changed("trial", with_key("task.search.run", add(1))),
    "trial of no point": changed("trial", with_key("task.search.point", 999)), "trial with more time": changed("trial", with_key("took_ns", add(1))),
    "trial that took no time": changed("trial", with_key("took_ns", 1), outcome("passed")),
    "failure at other places": changed("trial", with_key("result.losses.places.0.low", add(1)), outcome("failed")),
    "failure with another course": changed("trial", with_key("result.series.lost.0", add(1)), outcome("failed")),
    "trial on a strange host": changed("trial", lambda record: record["result"].update(clocks=[{
        "host": "strange", "offset_ns": 0, "bound_ns": 1, "drift_ppm": 0.0, "exchanges": 1, "late_ns": 0}])),
    "trial without a host": changed("trial", lambda record: record["result"]["clocks"].pop()),
    # Ends.
    "result raised": changed("finished", with_key("rate_qps", add(1)), found), "failed rate raised": changed("finished", with_key("failed_qps", add(1)), found),
    "end called a limit": changed("finished", with_key("end", {"ended": "limited_by_tester", "limit_qps": 1}), found),
    "end called a disturbance": changed("finished", with_key("end", {"ended": "tester_fault", "fault": "interrupted"}), found),
    "end with less time": changed("finished", with_key("took_ns", add(-1))), "end of another run": changed("finished", with_key("task.search.run", add(1))),
    # The form of records.
    "campaign without a plan": changed("campaign", without("plan")), "trial without losses": changed("trial", without("result.losses")),
    "trial without notes": changed("trial", without("result.notes")), "trial with half a query": changed("trial", with_key("result.answers.valid", add(0.5))),
    "trial with a text for a count": changed("trial", with_key("result.answers.valid", str)), "trial with fewer than no drops": changed("trial", with_key("result.tester_drops", -1)),
    "trial with no number": raw("trial", '"tester_drops":0', '"tester_drops":NaN'),
    "trial with a number without end": raw("trial", '"bin_10ms_deviation_pct_max":', '"bin_10ms_deviation_pct_max":1e999,"x":'),
    "trial nested without end": raw("trial", '"notes":[', '"x":' + "[" * 20000 + "]" * 20000 + ',"notes":['),
    "trial with a key twice": raw("trial", '"shortfall":0', '"shortfall":0,"shortfall":0'), "trial that is not JSON": raw("trial", '"result":{', '"result":{{'),
    "trial with a fault that does not exist": changed("trial", with_key("result.fault", {"unknown": {}}), outcome("invalid")),
    # Cannot be read, which the exit code says.
    "2 format of the future": changed("campaign", with_key("format", add(1))), "2 format of the past": changed("campaign", with_key("format", add(-1))),
    "2 record of the future": inserted("trial", {"prophecy": {}}),
}

# Journals that were not sealed again.
OCTETS = {
    "unsealed: digit changed": lambda lines: lines[:-2] + [lines[-2].replace(b"1", b"2", 1), lines[-1]],
    "unsealed: line removed": lambda lines: lines[:2] + lines[3:], "unsealed: first line removed": lambda lines: lines[1:],
    "unsealed: lines swapped": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "unsealed: line twice": lambda lines: [*lines[:3], lines[2], *lines[3:]], "unsealed: seal of another line": lambda lines: [*lines[:-1], lines[-1][:-76] + lines[-2][-76:]],
    "unsealed: upper case": lambda lines: [*lines[:-1], lines[-1][:-67] + lines[-1][-67:-3].upper() + lines[-1][-3:]],
    "2 cut off in the last line": lambda lines: lines[:-1] + [lines[-1][:-5]], "2 cut off before the line feed": lambda lines: lines[:-1] + [lines[-1][:-1]],
    "unsealed: empty line": lambda lines: [*lines, b"\n"], "unsealed: zero octets": lambda lines: [*lines, b"\0\0\n"],
}


def of_results(path, value):
    """A figure of results.json is changed, with the sums of the files."""
    def forge(report):
        before = (report / "results.json").read_text()
        results = json.loads(before)
        try:
            with_key(path, value)(results)
        except (KeyError, TypeError, IndexError):
            raise Absent from None
        if results == json.loads(before):
            raise Absent
        (report / "results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
        lines = (report / "SHA256SUMS").read_text().splitlines()
        digest = hashlib.sha256((report / "results.json").read_bytes()).hexdigest()
        (report / "SHA256SUMS").write_text("".join(f"{digest}  results.json\n" if line.endswith("  results.json") else line + "\n" for line in lines))
    return forge


REPORTS = {
    **{f"report with another {path}": of_results(path, value) for path, value in {
        "points.0.summary.median": add(1), "points.0.summary.p1": add(1), "points.0.summary.p99": add(1), "points.0.summary.average": add(1),
        "points.0.summary.runs": add(1), "points.0.summary.standard_deviation": add(1), "points.0.runs.0.rate_qps": add(1), "points.0.runs.0.failed_qps": add(1),
        "points.0.runs.0.ended": "limited_by_request", "points.0.runs.0.trials": lambda trials: trials[1:], "points.0.certified_rate_qps": add(1),
        "points.0.lower_bound": lambda is_one: not is_one, "points.0.runs": lambda runs: runs[1:], "certificates.0.certified_rate_qps": add(1),
        "certificates": lambda all_of_them: all_of_them[1:] if all_of_them else 0, "complete": lambda is_it: not is_it, "journal_seal": "0" * 64, "plan_sha256": "0" * 64,
        "tester": "another", "points": lambda points: points[1:]}.items()},
    "report with another sum": lambda report: (report / "SHA256SUMS").write_text((report / "SHA256SUMS").read_text().replace("0", "1")),
    "report with another page": lambda report: (report / "index.html").write_text("<p>faster"),
    "report with one more file": lambda report: (report / "more.csv").write_text("1"), "report without a file": lambda report: (report / "runs.csv").unlink(),
    "2 report without sums": lambda report: (report / "SHA256SUMS").unlink(),
}


def judged(path):
    """The exit code of the verifier, and its words."""
    try:
        return 0, verify.verify(path, None)
    except verify.Wrong as error:
        return 1, str(error)
    except (verify.Unreadable, OSError) as error:
        return 2, str(error)


def forgeries(campaign, made):
    """The name of each forgery of a campaign that was not made yet, and a function that makes it in a directory."""
    lines = (campaign / "journal.jsonl").read_bytes().splitlines(keepends=True)
    def write(octets):
        return lambda directory: (directory / "journal.jsonl").write_bytes(b"".join(octets))
    for name, forge in JOURNALS.items():
        if name in made:
            continue
        values = [json.loads(line) for line in lines]
        records = [(value["at_unix_ms"], value["record"]) for value in values]
        try:
            forge(records)
            yield name, write(sealed(records))
        except Absent:
            pass
    for name in OCTETS.keys() - made:
        yield name, write(OCTETS[name](lines))
    for name in REPORTS.keys() - made:
        def copy(directory, forge=REPORTS[name]):
            (directory / "journal.jsonl").write_bytes(b"".join(lines))
            shutil.copytree(campaign / "report", directory / "report")
            forge(directory / "report")
        yield name, copy


def main():
    out, *campaigns = map(Path, sys.argv[1:])
    names, wrong = set(), 0
    for campaign in campaigns:
        code, words = judged(campaign)
        if code:
            wrong += 1
            print(f"{campaign}: honest, and refused: {words}")
        for name, forge in forgeries(campaign, set(names)):
            directory = out / f"{campaign.name}.{name}"
            directory.mkdir(parents=True)
            try:
                forge(directory)
            except Absent:
                shutil.rmtree(directory)
                continue
            names.add(name)
            is_report = "report" in name
            code, words = judged(directory if is_report else directory / "journal.jsonl")
            if code != (2 if name.startswith("2 ") else 1):
                wrong += 1
                print(f"{directory}: forged, and the exit code is {code}: {words}")
    print(f"{len(names)} kinds of forgeries of {len(campaigns)} campaigns, wrong about {wrong}; never made: {sorted({*JOURNALS, *OCTETS, *REPORTS} - names)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
