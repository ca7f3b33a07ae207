"""What is taken for a secret, and what must not be: command lines, texts, names, values."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.redact import Redactor
from unhang.telltale import (
    REMOVED,
    harmless_command,
    harmless_log,
    is_secret_name,
    known_words,
    without_secrets,
)

SECRETS = (Path(__file__).parents[1] / "data" / "secrets.txt").read_text().splitlines()
"""Lines with a secret each, which is or holds the word HIDDEN."""

HARMLESS_COMMANDS = (
    "torchrun --nproc-per-node 8 --rdzv-id 77 train.py --lr 0.1",
    "python train.py --max-tokens 512 --tokenizer gpt2 --num-passes 3 --bypass x --author me",
    "python t.py --num-key-value-heads 8 --key-dim 64 --sort-keys x --pass-through y",
    "docker run image:v1@sha256:0123abcd",
    "git clone git@example.org:a/b",
    "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
    "rsync -p user@host:/a/b c",
)


@pytest.mark.parametrize(
    "words",
    [
        ["x", "--password", "Hidden"],
        ["x", "--db-pass=Hidden"],
        ["x", "--pw", "Hidden"],
        ["x", "--wandb-key", "Hidden"],
        ["x", "--hf-token=Hidden"],
        ["x", "model.api_key=Hidden"],
        ["x", "--env=WANDB_KEY=Hidden"],
        ["x", "--db", "app:Hidden@db.example.org:5432"],
        ["x", "https://Hidden:Hidden@example.org/a?b=1"],
        ["x", "https://example.org/a?b=1&sig=Hidden&c=2"],
        ["x", "redis://:Hidden@host"],
        ["x", '{"api_key": "Hidden Hidden", "a": 1}'],
        ["mysql", "-u", "me", "-pHidden"],
        ["/usr/bin/sshpass", "-p", "Hidden", "ssh", "host"],
        ["curl", "-u", "me:Hidden", "url"],
        ["wandb", "login", "Hidden"],
        ["bash", "-c", "python t.py --password 'Hidden Hidden' --pw Hidden"],
        ["x", "--header", "Authorization: Bearer Hidden123"],
    ],
)
def test_a_secret_of_a_command_line_goes(words: list[str]) -> None:
    """And nothing but the word that holds it is touched."""
    clean = harmless_command(words)
    assert "Hidden" not in " ".join(clean)
    assert len(clean) == len(words)
    assert clean[0] == words[0]
    assert REMOVED in " ".join(clean)


@pytest.mark.parametrize("line", HARMLESS_COMMANDS)
def test_a_harmless_command_line_stays(line: str) -> None:
    """Models have tokens, keys and passes as well."""
    assert harmless_command(line.split()) == line.split()


@pytest.mark.parametrize(
    "text",
    [
        "password=Hidden1 and more",
        "token: Hidden12",
        '"password": "Hidden and Hidden"',
        r'{"m": "{\"password\": \"Hidden 1\"}"}',
        "Authorization: Basic Hidden12=",
        "AKIAHIDDENHIDDEN1234 ghp_HiddenHiddenHidden hf_HiddenHiddenHidden",
        "nvapi-HiddenHiddenHidden",
        "xoxb-1234567-Hidden sk-HiddenHiddenHidden AIzaHiddenHiddenHiddenHiddenHiddenHidden",
        "https://h.example.org/a?X-Amz-Credential=Hidden%2F&X-Amz-Signature=Hidden&v=1",
        "-----BEGIN PRIVATE KEY-----\nHidden\nHidden\n-----END PRIVATE KEY-----",
        "OperationalError: postgres://app:Hidden@db/x failed",
        "+ python t.py --db-pass Hidden",
        "wandb: using key 0f1e2d3c4b5a69788796a5b4c3d2e1f0Hidden01",
        "Bearer: HiddenHiddenHiddenHidden01",
        "WWW-Authenticate: NTLM TlRMTVNTUAAHidden0123456789",
        "s.Hidden0Hidden1Hidden2Hid",
    ],
)
def test_a_secret_of_a_text_goes(text: str) -> None:
    """By its form, or by the name before it."""
    assert "hidden" not in without_secrets(text).lower()


@pytest.mark.parametrize(
    "text",
    [
        "wait timeout after 300000ms, keys: /default_pg/0//cpu//0",
        "[rank0]: basic all_reduce in basic training, PWD=/home/me",
        "node01:1234:1236 [0] NCCL INFO comm 0x55 rank 0 nranks 2 - Init COMPLETE",
        'File "train.py", line 3, in forward_pass',
        "max_tokens: 512, pad_token_id=0, monkey=patch",
        "2 passed, 1 failed: key error",
        'File "/env/site-packages/mmengine/hooks/checkpoint_hook.py", line 476, in save',
        "Secrets are removed where they are captured; the password is not set",
        "FATAL: password authentication failed for user 'svc'",
        "Access denied for user 'svc'@'host' (using password: YES)",
        "unknown token 'the' in prompt, max tokens 4096, tokenizer key 7",
        "pad_token='<|endoftext|>' eos_token='</s>'",
        "disk-0123456789abcdefghij task-sk-learn /services/T/B/x.py hooks.py:12",
        "tcp://10.0.0.1:29500/a@b",
        "fw_runtime_per_module tk_some_function_of_ours_with_words re_run_the_whole_of_the_loop",
        "kernel<<<grid, block>>> key=rank0/barrier key: 0123456789 cache key 17",
        "no entry of key fx_0f1e2d3c4b5a69788796a5b4c3d2e1f0 in job s.2026.11 of class s.Trainer",
        "kind: ConfigMap\ndata:\n  lr: '0.1'\n",
        "MASTER_KEY_ID=7 PRIMARY_KEY: run_id NCCL_IB_PKEY=0x8001",
        "task_0123456789abcdef0123456789abcdef pg-00000000-0000-0000-0000-000000000000",
        "compiled triton_poi_fused_add_0d1d2d3de in ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        "echo starting | tee log; n1:29500:0:1:2 [1]: step 5",
    ],
)
def test_a_line_without_secrets_stays(text: str) -> None:
    """What tells why a job hangs is not to be lost."""
    assert without_secrets(text) == text


@pytest.mark.parametrize("line", SECRETS)
def test_every_known_form_goes_from_a_log(line: str) -> None:
    """Tokens by prefix, sentences, hooks, cookies, DSNs, options of tools, in code and in JSON."""
    assert "HIDDEN" not in without_secrets(line)
    assert "HIDDEN" not in Redactor().text(line)


@pytest.mark.parametrize("line", [line for line in SECRETS if "=" in line or ": " in line])
def test_what_is_assigned_goes_behind_the_words_of_a_log(line: str) -> None:
    """An error quotes a line of a configuration that it could not read."""
    assert "HIDDEN" not in without_secrets(f"[rank3]: RuntimeError: {line}")
    assert "HIDDEN" not in without_secrets(f"2026-11-28 10:00:00,123 INFO trainer: {line}")


@pytest.mark.parametrize(
    "text",
    [
        "password: |\n  HIDDEN\n  HIDDEN\nnext: 1",
        "private_key: >-\n    HIDDEN\n    HIDDEN\n",
        '- name: DB_PASSWORD\n  value: "HIDDEN"\n',
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nHIDDEN\n-----END PGP PRIVATE KEY BLOCK-----",
        "tls.key: |\n  -----BEGIN EC PRIVATE KEY-----\n  HIDDEN\n  -----END EC PRIVATE KEY-----\n",
        f"{'aB3HIDDEN' * 7}x\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OpenVPN Static key V1-----\nHIDDEN\n-----END OpenVPN Static key V1-----",
        "---- BEGIN SSH2 PRIVATE KEY ----\nHIDDEN\n---- END SSH2 PRIVATE KEY ----",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\ndata:\n  ca: HIDDEN\n  user: HIDDEN\n",
        "apiVersion: v1\ndata:\n  ca: HIDDEN\nkind: Secret\nmetadata:\n  name: x\n",
        "kind: Secret\nstringData:\n  runs.conf: HIDDEN one\ntype: Opaque\n",
        "[client.admin]\n\tkey = AQBHIDDENabcdefghijklmnopqrstuvwxyz0123==\n\tcaps mon = allow",
    ],
)
def test_key_material_of_several_lines_goes(text: str) -> None:
    """As PEM and YAML have it, also where a log begins in the midst of it."""
    assert "HIDDEN" not in without_secrets(text)


def test_fields_that_are_secrets_go_as_a_whole() -> None:
    """Whatever their values look like; a variable of a pod has its name in another field."""
    value = {
        "password": "HIDDEN two",
        "env": [{"name": "DB_PASSWORD", "value": "HIDDEN"}, {"name": "LR", "value": "0.1"}],
        "ghp_HIDDENabcdefghijklmnop": 1,
    }
    clean = Redactor().value(value)
    assert "HIDDEN" not in str(clean)
    assert clean["env"][1] == value["env"][1]


def test_a_log_keeps_its_other_bytes() -> None:
    """Bytes that are no text stay as they are."""
    log = b"\xff\xfe step 1\r\npassword=Hidden1\r\n\x80"
    assert harmless_log(log) == b"\xff\xfe step 1\r\npassword=<removed>\r\n\x80"


def test_names_of_variables() -> None:
    """InfiniBand's partition key and tokenizers are none."""
    secret = (
        "WANDB_API_KEY",
        "WANDB_KEY",
        "DB_PASS",
        "X_TOKEN",
        "MY_SECRET",
        "PGPASSWORD",
        "DB_PW",
    )
    harmless = ("NCCL_IB_PKEY", "TOKENIZERS_PARALLELISM", "NCCL_DEBUG", "OMP_NUM_THREADS", "PWDX")
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in harmless if is_secret_name(name)] == []


def test_what_is_known_of_a_command_line() -> None:
    """What runs, names of options and plain values; of the rest nobody knows."""
    line = (
        "/opt/bin/torchrun --nnodes 2 -m pkg.train --name plan --lr=1e-3 --tag=plan plan x.y=plan"
    )
    told = [f"{known}{'?' if unknown else ''}" for known, unknown in known_words(line.split())]
    assert " ".join(told) == (
        "/opt/bin/torchrun --nnodes 2 -m pkg.train --name ? --lr=1e-3 --tag=? ? x.y=?"
    )
