"""How tokens begin that providers give out: what they publish, as a table.

A prefix is literal, and what follows it a pattern. `SHAPES` has the shapes that many tokens share,
for those without a prefix of their own.
"""

from __future__ import annotations

from typing import Final

PROVIDERS: Final = (
    # What providers publish of how their tokens begin, and what follows. Prefixes are literal.
    ("AKIA ASIA ABIA ACCA", r"[0-9A-Z]{16}(?::[A-Za-z0-9/+]{30,})?"),  # AWS
    ("ABSK", r"[A-Za-z0-9+/]{60,}"),  # AWS Bedrock
    ("AIza ya29. GOCSPX- 1//0", r"[\w-]{16,}"),  # Google
    ("LTAI AKID AQVN", r"[A-Za-z0-9_-]{14,}"),  # Alibaba, Tencent, Yandex
    ("gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ ATBB ATCTT3 ATATT3", r"[\w=-]{16,}"),  # git hosts
    ("glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-", r"[\w-]{16,}"),
    ("glrtr- glffct- glwt-", r"[\w-]{16,}"),
    ("npm_ rubygems_ cio dckr_pat_ dckr_oat_ AKCp cmVmdGtu", r"[A-Za-z0-9_-]{24,}"),  # registries
    ("pypi-Ag CLOJARS_ BBDC- GR1348941", r"[\w-]{16,}"),
    ("hf_ hf_oauth_ api_org_ r8_ gsk_", r"[A-Za-z0-9]{16,}"),  # models
    ("fw_", r"[A-Za-z0-9]{20,}"),
    ("tgp_v1_ rpa_ KGAT_ wandb_v1_ jina_ e2b_ esecret_ ls__ fc-", r"[A-Za-z0-9_]{16,}"),
    ("sk- pk-lf- nvapi- pplx- xai- csk- tvly- pcsk_ lsv2_", r"[\w-]{16,}"),
    ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w.-]{10,}"),  # Slack
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", r"\w{10,}"),  # Stripe
    ("sq0atp- sq0csp- EAAA EAACEdEose0cBA shpat_ shpca_ shppa_ shpss_ shippo_live_", r"[\w-]{16,}"),
    ("dapi dkea dose", r"[A-Za-z0-9]{20,}"),  # Databricks
    ("hvs. hvb. hvr.", r"[\w-]{16,}"),  # HashiCorp
    ("s.", r"(?=[A-Za-z]{0,23}\d)[A-Za-z0-9]{24}(?![\w.])"),  # the same until its version 1.9
    ("dop_v1_ doo_v1_ dor_v1_ HRKU- FlyV1 fo1_ nfp_ vcp_ vck_ sbp_ sb_secret_", r"[\w-]{16,}"),
    ("SG.", r"[\w-]{12,}\.[\w-]{12,}"),  # mail
    ("xkeysib- xsmtpsib- re_ key-", r"(?=[A-Za-z_-]{0,12}\d)[A-Za-z0-9_-]{24,}"),
    ("SK", r"[0-9a-f]{32}"),  # Twilio
    ("glsa_ glc_ dt0c01. NRAK- NRAL NRII- NRJS- sntrys_ sntryu_ phc_ phx_", r"[\w.-]{16,}"),
    ("PMAK- pul- lin_api_ ntn_ figd_ CFPAT- rdme_ sgp_ slk_ bkua_ CCIPAT_ tfp_", r"[\w-]{20,}"),
    ("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit. sl.", r"[\w.-]{20,}"),
    ("pscale_tkn_ pscale_pw_ pscale_oauth_ essu_ pnu_ pnb_ sm_pat_ tskey-", r"[\w.-]{16,}"),
    ("ops_eyJ A3- AGE-SECRET-KEY-1", r"[\w-]{20,}"),  # 1Password, age
    ("sha256~", r"[\w-]{40,}"),  # OpenShift
    ("LS0tLS1CRUdJTi", r"[\w+/=]{4,}"),  # PEM in base64, as kubeconfig has it
    ("MII b3BlbnNzaC1rZXktdjE", r"[A-Za-z0-9+/]{40,}={0,2}"),  # keys without their frame
    ("ak- as-", r"[A-Za-z0-9]{20,}"),  # Modal
    ("secret_", r"[A-Za-z0-9]{32,}|[\w-]{1,60}\.[A-Za-z0-9]{20,}"),  # Notion, Lambda
    ("AKLT STS.N DO00 SCW K00", r"[A-Za-z0-9]{17,}"),  # Volcano Engine, Alibaba, stores
    ("bce-v3/", r"[\w-]{10,}/[\w-]{16,}"),  # Baidu
    ("v1.0-", r"[A-Za-z0-9]{24}-[A-Za-z0-9]{100,}"),  # Cloudflare
    ("cfut_ cfat_ cfk_ napi_ mdb_sa_sk_ aio_ tk_ waka_", r"[\w-]{20,}"),
    ("squ_ sqp_ sqa_ sqb_ hcaik_ hcxik_ hcalk_ hcbik_", r"[A-Za-z0-9]{20,}"),  # Sonar, Honeycomb
    ("bkct_ bkpt_ dnkey- duffel_live_ duffel_test_ fio-u- ico- EZAK EZTK ATTA", r"[\w-]{30,}"),
    ("FLWSECK_ FLWSECK- sm_aat_ nyk_ API- y0_ t1.", r"(?=[\w-]{0,20}\d)[\w-]{24,}"),
    ("access-sandbox- access-development- access-production-", r"[0-9a-zA-Z-]{24,}"),  # Plaid
    ("gAAAAA", r"[\w-]{60,}"),  # Fernet
    ("AAAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{30,}"),  # X
    ("SCT", r"\d{1,8}T[A-Za-z0-9]{10,}"),  # ServerChan
    ("v1.local. v2.local. v3.local. v4.local. v1.public. v2.public. v4.public.", r"[\w-]{30,}"),
)  # fmt: skip

LONG: Final = 30
"""A word of so many letters and digits may be a token by its shape."""

SHAPES: Final = (
    # prefix_ and a long mix of digits and both cases, as new providers have it; hashes have one
    (
        r"(?<![A-Za-z0-9_-])[a-z][a-z0-9]{1,11}(?:[_-][a-z]{2,8}){0,2}[_-]"
        r"(?=[A-Za-z]{0,99}\d)(?=[A-Z0-9]{0,99}[a-z])(?=[a-z0-9]{0,99}[A-Z])[A-Za-z0-9]{30,}(?![\w-])"
    ),
    r"(?<![A-Za-z0-9])[A-Za-z0-9]{72,80}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])",  # Azure DevOps
    r"(?<![\w+/])AQ[\w+/]{24,48}==",  # Ceph
)
"""Tokens by shape."""
