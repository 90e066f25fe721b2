"""Command line of the fake machine: `python -m migrator.gpu.fake_nvml FOLDER board A100-40GB`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from migrator.core.errors import MigratorError
from migrator.gpu.fake_nvml.faults import EFFECTS
from migrator.gpu.fake_nvml.machine import FakeNvml

EPILOG = """\
an evening with it:
  export MIGRATOR_FAKE_NVML=/tmp/fake
  python -m migrator.gpu.fake_nvml /tmp/fake board A100-40GB H200-141GB
  migrator gpu show --driver mig --gpu 1
  python -m migrator.gpu.fake_nvml /tmp/fake foreign 4 3g.20gb
  python -m migrator.gpu.fake_nvml /tmp/fake hold 4 --pid $$
  python -m migrator.gpu.fake_nvml /tmp/fake fault transient-destroy --count 2
  migrator gpu apply layout.yaml --driver mig
  python -m migrator.gpu.fake_nvml /tmp/fake show
  python -m migrator.gpu.fake_nvml /tmp/fake reboot

MIGRATOR_FAKE_NVML=FOLDER:BOARD,BOARD begins a machine with these boards by itself.
"""


def main(words: list[str] | None = None) -> int:
    """Run a command and print the resulting state of the fake machine."""
    wanted = _parser().parse_args(words)
    try:
        if wanted.verb == "board":
            FakeNvml(wanted.folder, wanted.names, mig=not wanted.mig_off)
        fake = FakeNvml(wanted.folder)
        _done(fake, wanted)
    except MigratorError as error:
        print(f"fake_nvml: {error}", file=sys.stderr)
        return 2
    print(_shown(fake))
    return 0


def _done(fake: FakeNvml, wanted: argparse.Namespace) -> None:
    match wanted.verb:
        case "fault":
            count = None if wanted.always else wanted.count
            fake.fault(wanted.kind, count, after=wanted.after, seconds=wanted.seconds)
        case "mend":
            fake.mend()
        case "hold":
            fake.hold(wanted.start, wanted.pid, wanted.gpu)
        case "release":
            fake.release(wanted.pid, wanted.gpu)
        case "foreign":
            fake.foreign(wanted.start, wanted.profile, wanted.gpu, whole=not wanted.half)
        case "remove":
            fake.remove(wanted.start, wanted.gpu)
        case "mig":
            fake.mig(wanted.mode == "on", wanted.gpu)
        case "reboot":
            fake.reboot()


def _shown(fake: FakeNvml) -> str:
    state = fake.store.now()
    lines = [f"boot {state.boot_id}"]
    for index, gpu in enumerate(state.gpus):
        lines.append(f"GPU {index}: {gpu.board}, MIG {'on' if gpu.mig else 'off'}, {gpu.uuid}")
        for each in fake.instances(index):
            half = "" if each.uuid else ", no compute instance"
            held = "".join(f", held by {holder}" for holder in each.holders)
            lines.append(f"  {each.place} (GPU instance {each.number}{half}){held}")
    for fault in state.faults:
        often = "until mended" if fault.left is None else f"{fault.left} times"
        lines.append(f"fault {fault.kind}: {often}, after {fault.after} calls")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m migrator.gpu.fake_nvml",
        description="A machine with GPUs that are not there, for `migrator gpu --driver mig`.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="where the fake machine keeps its state")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    _board_verbs(verbs)
    _fault_verbs(verbs)
    _process_verbs(verbs)
    return parser


def _board_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    board = verbs.add_parser("board", help="begin a machine with these boards")
    board.add_argument("names", nargs="+", metavar="BOARD", help="as `migrator boards` lists them")
    board.add_argument("--mig-off", action="store_true", help="with MIG mode off")
    verbs.add_parser("show", help="what is on the boards, and which faults are to come")
    verbs.add_parser("reboot", help="instances and processes gone; MIG mode kept on Ampere only")
    mig = verbs.add_parser("mig", help="switch MIG mode, as the operator would")
    mig.add_argument("mode", choices=["on", "off"])
    foreign = verbs.add_parser("foreign", help="somebody else makes an instance")
    foreign.add_argument("start", type=int)
    foreign.add_argument("profile")
    foreign.add_argument("--half", action="store_true", help="without compute instance")
    remove = verbs.add_parser("remove", help="somebody else destroys an instance")
    remove.add_argument("start", type=int)
    for each in (mig, foreign, remove):
        each.add_argument("--gpu", type=int, default=0)


def _fault_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kinds = "\n".join(f"  {kind:<23} {effect.about}" for kind, effect in EFFECTS.items())
    fault = verbs.add_parser(
        "fault",
        help="something goes wrong",
        epilog=f"kinds:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    fault.add_argument("kind", choices=list(EFFECTS), metavar="KIND")
    fault.add_argument("--count", type=int, default=1, help="so many times (1)")
    fault.add_argument("--always", action="store_true", help="until `mend`")
    fault.add_argument("--after", type=int, default=0, help="when so many calls went well (0)")
    fault.add_argument("--seconds", type=float, default=0.0, help="how long the call waits (0)")
    verbs.add_parser("mend", help="no fault is left")


def _process_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    hold = verbs.add_parser("hold", help="a process uses an instance, or the whole GPU")
    hold.add_argument("start", type=int, nargs="?", help="where the instance starts")
    hold.add_argument("--pid", type=int, required=True)
    release = verbs.add_parser("release", help="the process ends; without --pid, all")
    release.add_argument("--pid", type=int)
    for each in (hold, release):
        each.add_argument("--gpu", type=int, default=0)


if __name__ == "__main__":
    sys.exit(main())
