"""By what a secret is told: providers' prefixes, forms, names before it, options of programs.

Tables only; `telltale` reads them. Every pattern is linear in the length of a text (a test tries
each on its own worst inputs): what is unbounded begins where a run of its characters does. That is
why no pattern says what stands before a name: it stays anyway.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "ASSIGNED",
    "BLOCKS",
    "BLOCK_HINTS",
    "FORMS",
    "HINTS",
    "NAME",
    "NUMBER",
    "PROGRAMS",
    "PROVIDERS",
    "STRONG_NAME",
]

_KEYS: Final = (
    r"(?:api|access|private|auth|signing|session|account|shared|storage|encryption|license|master|"
    r"secret|client|service|subscription|function|webhook|routing|integration|instrumentation|"
    r"wandb|openai|aws|hf|ssh|deploy)[ _-]?key"
)
_WORDS: Final = (
    r"secret|passw(?:or)?d|passphrase|passcode|credential|cookie|\bdsn|connection[_-]?string|"
    rf"pre[_-]?shared|jsessionid|phpsessid|seed[ _-]phrase|mnemonic|{_KEYS}"
)
"""Words that make what follows a secret even in a sentence."""

_AUTHENTIC: Final = r"(?:access|api|auth|bearer|refresh|id|hf|login|bot|deploy|security)[ _-]?token"
"""Tokens that are none of a model's."""

_TAIL: Final = (
    r"s?(?:[ _.-]?(?:keys?|tokens?|id|values?|data|string|hash|text|base(?:64)?|b64|raw|plain|"
    r"prod|dev|new|old|\d{1,3})){0,3}"
)
"""What the name of a secret may end with: SECRET_KEY_BASE, client-key-data, password2."""

_SHORT: Final = r"pass|passwd|pw|pwd|psw|creds?|sas|jwt|sig|signature|token|key|auth|pin"
"""Words that do so as the last word of an option's name only: --db-pass, --wandb-key."""

STRONG_NAME: Final = (
    rf"{_WORDS}|(?<!by)(?<!com)pass(?!es|ive|ing|age|ed|[_-]?thr)|private|"
    r"(?:^|[_.-])(?:dsn|pw|pwd|psw|creds?|sas|jwt|pat|pin)$"
)
NAME: Final = (
    # Models have tokens and authors, InfiniBand has a partition key (PKEY): harmless.
    r"token(?!i[sz])|auth(?!or(?!i))|(?<![_-]p)(?<!^p)key$|(?:^|[_.-])sig(?:nature)?$"
)
NUMBER: Final = r"[\d.,+-]{1,7}[KMBkmb]?"

PROVIDERS: Final = (
    # What providers publish of how their tokens begin, and what follows. Prefixes are literal.
    ("AKIA ASIA ABIA ACCA", r"[0-9A-Z]{16}"),  # AWS
    ("ABSK", r"[A-Za-z0-9+/]{60,}"),  # AWS Bedrock
    ("AIza ya29. GOCSPX- 1//0", r"[\w-]{16,}"),  # Google
    ("LTAI AKID AQVN", r"[A-Za-z0-9_-]{14,}"),  # Alibaba, Tencent, Yandex
    ("gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ ATBB ATCTT3 ATATT3", r"[\w=-]{16,}"),  # git hosts
    ("glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-", r"[\w-]{16,}"),
    ("npm_ rubygems_ cio dckr_pat_ dckr_oat_ AKCp cmVmdGtu", r"[A-Za-z0-9_-]{24,}"),  # registries
    ("pypi-Ag", r"[\w-]{16,}"),
    ("hf_ api_org_ r8_ gsk_ fw_ tgp_v1_ rpa_ KGAT_ wandb_v1_", r"[A-Za-z0-9_]{16,}"),  # models
    ("sk- pk-lf- nvapi- pplx- xai- csk- tvly- pcsk_ lsv2_", r"[\w-]{16,}"),
    ("xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-", r"[\w.-]{10,}"),  # Slack
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ whsec_", r"\w{10,}"),  # Stripe
    ("sq0atp- sq0csp- EAAA shpat_ shpca_ shppa_ shpss_ shippo_live_", r"[\w-]{16,}"),
    ("dapi dkea dose", r"[A-Za-z0-9]{20,}"),  # Databricks
    ("hvs. hvb. hvr.", r"[\w-]{16,}"),  # HashiCorp
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
)  # fmt: skip

FORMS: Final = (
    (r"(?<=://)[^\s/:@\"'<>]*:[^\s/\"'<>]+(?=@)", 0),  # user:password in a URL
    # the same with a slash in the password; host:port/path is none
    (r"(?<=://)[^\s/:@\"'<>]{1,80}:(?!\d{1,5}/)[^\s\"'<>@]{1,200}(?=@[\w.-])", 0),
    (r"(?<=https://)[^\s/:@\"'<>]{8,}(?=@)|(?<=http://)[^\s/:@\"'<>]{8,}(?=@)", 0),
    # the same without a scheme; image:tag@sha256 is none
    (
        (
            r"(?<![\w/@.:+-])(?:(?<=[\s\"'=])|(?<![^\s]))[A-Za-z_][\w.+-]{0,60}:"
            r"(?=[^\s/@:]*[A-Za-z])[^\s/@:\"'<>]{3,200}(?=@(?!sha\d)[A-Za-z0-9])"
        ),
        0,
    ),
    (
        (
            r"(?<=[?&])(?P<kept>[\w.%-]{0,60}(?:sig|signature|token|key|secret|passw?|passwd|password|"
            r"credential|auth|key-?id|code)=)(?P<value>[^\s&#\"'<>\\]+)"
        ),
        re.IGNORECASE,
    ),
    # hooks: whoever has the path may write there
    (r"(?P<kept>/services/)(?P<value>T\w{4,20}/B\w{4,20}/\w{4,})", 0),
    (
        (
            r"(?P<kept>(?:(?<=://)[\w.:-]{0,120}|(?<=\burl: )|(?<=\bpost ))"
            r"(?:/[\w.@-]{1,64}){0,6}/(?:web)?hooks?(?:/catch|/send)?/)(?P<value>[^\s\"'<>]{6,})"
        ),
        re.IGNORECASE,
    ),
    (
        r"(?<=://)(?P<kept>[\w.-]{0,60}hooks?\.[\w.-]{1,80}/)(?P<value>[^\s\"'<>]{6,})",
        re.IGNORECASE,
    ),
    (r"(?<![A-Za-z0-9])(?:bot)?\d{8,10}:[\w-]{30,64}", 0),  # Telegram
    (r"(?<![\w-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", 0),  # Discord
    (r"(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*", 0),  # JSON web tokens
    (r"(?<![\w.+/-])(?:eyJhcGlf|eyJhdXRo|eyJrIjoi)[\w+/=-]{16,}", 0),  # JSON in base64
    (r"(?<![\w.-])pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}", 0),
    (r"(?<![\w-])[\w~.-]{3}\dQ~[\w~.-]{30,}|(?<![\w-])[0-9a-f]{32}-us\d{1,2}\b", 0),
    (r"\$(?:[156y]|2[abxy]?|apr1|argon2\w{0,2}|scrypt|pbkdf2[\w-]{0,16})\$[\w./$,=+-]{8,}", 0),
    (r"(?<=\bbearer )(?=\S{0,40}[\d._~+/=-]|\S{20})[\w.~+/=-]{8,}", re.IGNORECASE),
    (r"(?<=\bbasic )(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}", re.IGNORECASE),
    (r"(?<=\bpass:)[^\s\"']{2,}", 0),  # openssl
)

_SIGN: Final = (
    r"(?:(?:\s?:\s?(?:str|bytes|SecretStr|Optional\[str\]|str \| None))?"
    r"\s{0,8}(?:=>|:=|==?|:)\s{0,8}"
    r"|(?<=[_-]key)\s{1,8}"
    r"|(?<=[\"'])\s{0,4},\s{0,4}(?=\\?[\"'])(?!\\?[\"'][\w.-]{1,40}\\?[\"']\s{0,4}:))(?:[bruf]{1,2}(?=[\"']))?\\?[\"']?"
)
_QUOTED: Final = r"(?<=\")[^\"\\\n]+(?=\\?\")|(?<=')[^'\\\n]+(?=\\?')"
_BARE: Final = r"(?:[^\s\"',;&\\]|\\[^\"'\s]|[,;&](?=[^\s,;&\"'])(?![\w.-]{1,40}=))"
_VALUE: Final = rf"(?:{_QUOTED}|{_BARE}{{4,}})"
_SOME: Final = rf"(?!(?:yes|no|true|false|none|null)\b)(?:{_QUOTED}|{_BARE}{{2,}})"
_LAST: Final = r"\\?[\"')]?\]?"
"""What may stand between a name and its sign: the end of a string, of a subscript."""

_CLAUSE: Final = (
    r"(?:\s{1,4}(?:for|of)(?:\s{1,4}user)?\s{1,4}[^\s:]{1,60})?"
    r"(?:\s{1,4}(?:is|was|are|as|to|now|set|used|provided|given|supplied|entered|received)){0,3}"
)
_SAYS: Final = (
    r"not|no|an?|the|too|in|on|at|by|from|for|to|of|empty|missing|required|incorrect|wrong|invalid|"
    r"expired|unset|set|needed|none|null|gone|left|removed|taken|replaced|told|never|being|rejected|only|used|stored|unknown|weak|"
    r"different|must|already|still|also|valid|blank|undefined|ignored|disabled|enabled|changed|"
    r"deleted|reset|saved|loaded|read|sent|denied|refused|accepted|necessary|available|present"
)
"""What a sentence goes on with that tells of a password, not which."""

ASSIGNED: Final = (
    # Authorization: Scheme value; some schemes have several
    (
        rf"(?P<kept>authorization{_LAST}\s{{0,8}}[=:]\s{{0,8}}\\?[\"']?"
        r"(?:digest|aws4[\w-]{0,20}|oauth|hawk)\s)(?P<value>[^\n]+)"
    ),
    (
        rf"(?P<kept>authorization{_LAST}\s{{0,8}}[=:]\s{{0,8}}\\?[\"']?(?:[a-z]{{3,12}}\s{{1,8}})?)"
        rf"(?P<value>{_VALUE})"
    ),
    # all values of a header, not the first alone
    (
        r"(?P<kept>cookie2?\s{0,4}:\s{0,4})(?P<value>[\w.%-]{1,80}=(?:\"[^\"\n]*\"|[^\s;\"'\n]*)"
        r"(?:;\s{0,4}[\w.%-]{1,80}(?:=(?:\"[^\"\n]*\"|[^\s;\"'\n]*))?)*)"
    ),
    # NAME_SECRET=value, "password": "value", --api-key value, ("password", "value")
    rf"(?P<kept>(?:{_WORDS}){_TAIL}{_LAST}{_SIGN})(?P<value>{_SOME})",
    # <password>value</password>, name="password" value="value"
    rf"(?P<kept>(?:{_WORDS}|token){_TAIL}>)(?P<value>[^<>\n]+)(?=</)",
    (
        rf"(?P<kept>\b(?:name|key)[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"'][\w.-]{{0,60}}(?:{_WORDS}|token)[\w.-]{{0,20}}"
        rf"[\"'],?\s{{1,4}}[\"']?value[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"'])(?P<value>[^\"'\n]+)"
    ),
    # the same for tokens, of which models have harmless ones: a mere number is none
    rf"(?P<kept>token{_LAST}{_SIGN})(?![\d.,]+(?!\S))(?P<value>{_VALUE})",
    # pw=value, "pass": "value"; PWD=/a/path is a working directory
    (
        r"(?P<kept>(?<![A-Za-z])(?:pass|pw|pwd|psw|_auth)"
        rf"(?:=|\\?[\"']\s{{0,8}}:\s{{0,8}}|:\s{{1,4}}(?=[^\s\"']{{0,40}}[\d!@#$%^&*]|[\"']))\\?[\"']?)"
        rf"(?![\d.,]+(?!\S)|/)(?P<value>{_VALUE})"
    ),
    r"(?P<kept>[\"']auth(?:token)?[\"']\s{0,8}:\s{0,8}[\"'])(?P<value>[^\"'\n]{8,})",
    # --db-pass value, --wandb-key value, --dbPassword value
    (
        r"(?<![\w.-])(?P<kept>--?"
        rf"(?:(?:[\w.-]{{0,80}}[_.-])?(?:{_SHORT})|[\w.-]{{0,80}}(?:{_WORDS}))s?"
        r"(?:=|\s{1,8})\\?[\"']?)(?!-|[\d.,]{1,6}(?!\S)|\\?[\"']?\s)"
        r"(?P<value>(?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"']+)"
    ),
    # password 'value', passphrase is "value", API key provided: value, the password of x was value
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC}){_TAIL}{_CLAUSE}[:,]?\s{{1,4}}\\?[\"'`])"
        r"(?P<value>(?<=\")[^\"\\\n]+|(?<=')[^'\\\n]+|(?<=`)[^`\\\n]+)"
    ),
    (
        rf"(?P<kept>pass ?phrase{_CLAUSE}\s{{1,4}}(?:is|was)\s{{1,4}})"
        rf"(?!(?:{_SAYS})\b)(?P<value>[^\"'\n]+)"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC}){_TAIL}{_CLAUSE}"
        rf"(?:(?<=\sis)|(?<=\swas)|(?<=\sare)|(?<=\sto)|(?<=ed)|(?<=given)):?\s{{1,4}})"
        rf"(?!(?:{_SAYS})\b)(?P<value>[^\s\"']{{3,}})"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})s?\s{{1,4}})"
        r"(?=[^\s\"']{0,60}[\d!@#$%^&*+?~])(?![/(\[{]|[\w-]{1,20}://)(?P<value>[^\s\"',;]{4,})"
    ),
    r"(?P<kept>\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4})(?P<value>\S+)",  # .netrc
)

BLOCKS: Final = (
    # Key material and YAML: what has several lines.
    (
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"
    ),
    r"(?P<kept>Private-Lines: \d{1,4}\s{1,2})(?P<value>(?:[A-Za-z0-9+/=]{1,80}(?:\s|\Z))+)",
    # lines of a key whose beginning was cut off
    (
        r"(?<![\w+/=.-])(?!/)(?=[0-9+/a-z]{0,75}[A-Z])(?=[0-9+/A-Z]{0,75}[a-z])"
        r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})(?![\w+/=.-])"
    ),
    (
        rf"(?P<kept>(?i:(?:{_WORDS}|token|\.key){_TAIL})[\"']?[ ]?:[ ]?[|>][+-]?\d?[ \t]{{0,8}}\n)"
        r"(?P<value>(?:[ \t]+\S[^\n]*(?:\n|\Z))+)"
    ),
    (
        rf"(?P<kept>\bname: ?[\"']?[\w.-]{{0,60}}(?i:{_WORDS}|token|_pass|_key)[\w.-]{{0,20}}[\"']?"
        r"\n[ \t]{0,40}value: ?[\"']?)(?P<value>[^\"'\n]+)"
    ),
)
BLOCK_HINTS: Final = ("PRIVATE KEY", "Private-Lines", ": |", ": >", ":|", ":>", "value:")

HINTS: Final = (
    "@", "key", "token", "auth", "secret", "pass", "pw", "psw", "cred", "cookie", "dsn", "shared",
    "connection", "sessid", "sessionid", "seed", "mnemonic", "bearer", "basic", "eyj", "sas", "jwt",
    "sig", "pin", "code=", "hook", "/services/", "bot", ":aa", "atlasv1", "q~", "-us", "$", "pat",
)  # fmt: skip
"""Where nothing of this stands in small letters, nor a provider's prefix, nothing needs a look."""

_FOLLOWED: Final = {
    "mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlsh mariadb mariadb-dump": "-p",
    "sshpass docker podman buildah nerdctl helm oras crane twine az kubectl 7z cqlsh": "-p",
    "mongo mongosh mongodump mongorestore": "-p",
    "mosquitto_pub mosquitto_sub sqlcmd bcp ipmitool zip unzip": "-P",
    "curl": "-u -U --user --proxy-user -b --cookie --oauth2-bearer --tlspassword --proxy-pass",
    "http https": "-a --auth", "wget": "--http-password", "redis-cli": "-a", "ldapsearch": "-w",
    "ldapadd": "-w", "ldapmodify": "-w", "snmpwalk": "-c -A -X", "smbclient": "-U", "rar": "-hp -p",
    "openssl": "-k -K -pass -passin -passout", "gpg": "--passphrase", "skopeo": "--creds",
    "influx": "-t", "openai": "-k", "prefect": "-k", "wandb": "login", "vault": "login",
    "cargo": "login", "rclone": "obscure", "ngrok": "authtoken add-authtoken", "gh": "-t",
    "cloudflared": "install", "npm": "_authToken", "tailscale": "--authkey", "xfreerdp": "/p",
}  # fmt: skip
"""Programs whose options are too short to tell: what follows them is a secret, glued or not."""
PROGRAMS: Final = {
    name: tuple(options.split()) for names, options in _FOLLOWED.items() for name in names.split()
}
