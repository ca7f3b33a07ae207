"""Pods of a job by `kubectl exec`, with the user's own context and rights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.collect.launchers import Choice, Launcher, Option
from unhang.collect.launchers.tools import ask_tool
from unhang.errors import ToolError, UsageError
from unhang.incoming import value_of

_HINT = "Check the context and the rights: kubectl auth can-i create pods/exec"
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Kubernetes(Launcher):
    """The running pods that a label selector names.

    Attributes:
        selector: As `kubectl get -l` takes it ("job-name=train").
        namespace, container: "" for the default ones.
    """

    cluster = "kubernetes"
    selector: str
    namespace: str = ""
    container: str = ""

    def nodes(self) -> Sequence[str]:
        """The names of the pods."""
        if not self.selector or self.selector.startswith("-"):
            raise UsageError(
                "that is not a label selector", "For example: --kubectl job-name=train"
            )
        command = ["kubectl", *self._where(), "get", "pods", "-l", self.selector, "-o", "json"]
        told = ask_tool(command, _HINT)
        try:
            items = value_of(told)["items"]
            pods = [pod["metadata"]["name"] for pod in items if pod["status"]["phase"] == "Running"]
        except (ValueError, KeyError, TypeError) as error:
            raise ToolError("kubectl gave no readable list of pods", _HINT) from error
        pods = [pod for pod in pods if isinstance(pod, str) and _NAME.fullmatch(pod)]
        if not pods:
            raise ToolError(f"no pod with {self.selector} is running", "See: kubectl get pods -A")
        return pods

    def command(self, nodes: Sequence[str], script: str) -> tuple[str, ...]:
        """One exec a pod."""
        (pod,) = nodes
        chosen = ("-c", self.container) if self.container else ()
        where = self._where()
        return "kubectl", *where, "exec", "-i", pod, *chosen, "--", "sh", "-c", script

    def _where(self) -> tuple[str, ...]:
        return ("-n", self.namespace) if self.namespace else ()


CHOICE = Choice(
    by=(Option("--kubectl", "SELECTOR", "pods with these labels"),),
    further=(
        Option("--namespace", "NAME", "for --kubectl", default="", short="-n"),
        Option("--container", "NAME", "for --kubectl", default=""),
    ),
    ways=("`--kubectl SELECTOR` | `kubectl exec` | running pods with these labels",),
    make=lambda args, _: Kubernetes(args.kubectl, args.namespace, args.container),
)
