#!/usr/bin/python3
"""Settings of a laboratory's host that last until it restarts, and services: recorded, then changed, then restored."""

import json
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.lab_settings import KINDS, RECORDED_ONLY, Refused, Unsupported, read

DOCUMENTATION = r"""
module: lab_host
short_description: Sets what a host needs in a laboratory, and puts it back
description:
  - Each setting is read first. What it was is written to I(directory) before it is changed, so that a run that
    is broken off can be restored too. A record of before the last restart of the host is dropped where the
    restart has undone the setting.
  - What the hardware or the kernel does not have is left out and listed in C(unsupported).
options:
  settings:
    description:
      - Each is a dictionary. C(kind) is one of C(sysctl), C(file), C(governor), C(link), C(forwarding),
        C(channels), C(spread), C(flow_hash), C(feature), C(irq), C(service), C(path) and C(package); C(name) says
        which one, C(value) what it shall be.
      - A C(path), with its content, and a C(package) that is missing are only recorded; other modules change them.
    type: list
    elements: dict
    default: []
  restore:
    description: Restores everything that is recorded, the last change first.
    type: bool
    default: false
  directory:
    description: Where the records are.
    type: str
    default: /var/lib/dns64bench/restore
author: dns64bench
"""

RETURN = r"""
done:
  description: One line for each change, or for each that check mode would make.
  type: list
unsupported:
  description: One line for each setting that this host does not have, with the reason.
  type: list
packages:
  description: Packages that were missing before and are recorded. Restoring does not remove them.
  type: list
"""


class Records:
    """What everything was before it was changed, in order. On the disk before the change is made."""

    def __init__(self, directory):
        self.directory = directory
        self.file = os.path.join(directory, "settings.json")
        self.boot = read("/proc/sys/kernel/random/boot_id")
        try:
            with open(self.file, encoding="utf-8") as file:
                self.all = json.load(file)
        except FileNotFoundError:
            self.all = []
        self.all = [record for record in self.all if self.holds(record)]

    def holds(self, record):
        """A restart has undone what is volatile."""
        return not KINDS[record["kind"]].VOLATILE or record["boot"] == self.boot

    def has(self, kind, name):
        return any((record["kind"], record["name"]) == (kind, name) for record in self.all)

    def add(self, kind, name, before):
        self.all.append({"kind": kind, "name": name, "before": before, "boot": self.boot})
        self.save()

    def save(self):
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        temporary = self.file + ".new"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(self.all, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.file)


class Work:
    """One call of the module."""

    def __init__(self, module):
        self.module = module
        self.check = module.check_mode
        self.records = Records(module.params["directory"])
        self.done, self.unsupported = [], []

    def setting(self, kind, name, **more):
        if kind not in KINDS:
            self.module.fail_json(msg="unknown kind '%s': must be one of %s" % (kind, ", ".join(KINDS)))
        setting = KINDS[kind](name, **more)
        if kind == "path":
            setting.directory = self.records.directory
        return setting

    def apply(self, kind, name, **more):
        setting = self.setting(kind, name, **more)
        current = setting.read()
        if kind in RECORDED_ONLY:
            if not self.records.has(kind, name) and not self.check:
                setting.keep()
                self.records.add(kind, name, current)
            return
        wanted = setting.wanted(current)
        if current == wanted:
            return
        if not self.check:
            if not self.records.has(kind, name):
                self.records.add(kind, name, current)
            try:
                setting.write(wanted)
            except Unsupported as reason:
                raise (Refused if setting.NEEDED else Unsupported)(str(reason)) from reason
        self.done.append("%s %s: %s" % (kind, name, difference(current, wanted)))

    def restore(self, record):
        before = record["before"]
        setting = self.setting(record["kind"], record["name"], value=before)
        try:
            # Only the copy of a file is known, not whether the file differs from it.
            current = setting.read() if record["kind"] != "path" else object()
        except (Unsupported, Refused) as reason:
            # It no longer exists.
            self.unsupported.append("%s %s: %s" % (record["kind"], record["name"], reason))
            return
        if current != before:
            if not self.check:
                setting.write(before)
            self.done.append("%s %s: restored" % (record["kind"], record["name"]))

    def settings(self):
        for entry in self.module.params["settings"]:
            entry = dict(entry)
            kind, name = entry.pop("kind"), str(entry.pop("name"))
            try:
                self.apply(kind, name, **entry)
            except Unsupported as reason:
                self.unsupported.append("%s %s: %s" % (kind, name, reason))

    def restore_all(self):
        failed = []
        for record in reversed(list(self.records.all)):
            try:
                self.restore(record)
            except Unsupported as reason:
                failed.append("%s %s: %s" % (record["kind"], record["name"], reason))
                continue
            if not self.check:
                self.records.all.remove(record)
                self.records.save()
        if failed:
            raise Refused("not restored, and still recorded: " + "; ".join(failed))
        if os.path.isdir(self.records.directory):
            if not self.check:
                shutil.rmtree(self.records.directory)
                self.remove_parent()
            self.done.append("records removed")

    def remove_parent(self):
        try:
            os.rmdir(os.path.dirname(self.records.directory))
        except OSError:
            # The directory contains other files.
            pass

    def packages(self):
        return [record["name"] for record in self.records.all if record["kind"] == "package"]


def difference(current, wanted):
    """Only what differs, for people."""
    if isinstance(current, dict) and isinstance(wanted, dict):
        keys = [key for key in wanted if current.get(key) != wanted[key]]
        return "; ".join("%s %s" % (key, difference(current.get(key), wanted[key])) for key in keys)
    return "%s -> %s" % (json.dumps(current), json.dumps(wanted))


def main():
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "list", "elements": "dict", "default": []},
            "restore": {"type": "bool", "default": False},
            "directory": {"type": "str", "default": "/var/lib/dns64bench/restore"},
        },
        supports_check_mode=True,
    )
    work = Work(module)
    packages = work.packages()
    try:
        if module.params["restore"]:
            work.restore_all()
        else:
            work.settings()
    except Refused as reason:
        module.fail_json(msg=str(reason), done=work.done)
    # Output of `--diff`.
    told = {"prepared": "".join(line + "\n" for line in work.done)} if work.done else {}
    module.exit_json(diff=told, changed=bool(work.done), done=work.done, unsupported=work.unsupported, packages=packages)


if __name__ == "__main__":
    main()
