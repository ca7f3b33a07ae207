"""What gives a secret away: the names before it.

Tables only; `telltale` reads them. Every pattern is linear in the length of a text (a test tries
each on its own worst inputs): what is unbounded begins where a run of its characters does. That is
why no pattern says what stands before a name: it stays anyway.
"""

from __future__ import annotations

from typing import Final

_KEYS: Final = (
    r"(?:api|access|private|auth|signing|session|account|shared|storage|encryption|license|master|"
    r"secret|client|service|subscription|function|webhook|routing|integration|instrumentation|"
    r"wandb|openai|aws|hf|ssh|deploy|unseal|recovery|app)[ _-]?key|"
    r"account\.key\.[\w.-]{1,120}(?==)"
)
_WORDS: Final = (
    r"secret|passw(?:or)?d|passphrase|passcode|credential|cookie|\bdsn|connection[_-]?string|"
    r"pre[_-]?shared|jsessionid|phpsessid|seed[ _-]phrase|mnemonic|"
    r"identified(?:\s{1,4}with\s{1,4}\S{1,40})?"
    rf"\s{{1,4}}by|require_?pass|master_?auth|bind_?pw|root_?pw|{_KEYS}"
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

_SIGN: Final = (
    r"(?:(?:\s?:\s?(?:str|bytes|SecretStr|Optional\[str\]|str \| None))?"
    r"\s{0,8}(?:=>|:=|==?|[:\uff1a\uff1d是为])\s{0,8}"
    r"|(?<=[_-]key)\s{1,8}"
    r"|(?<=[\"'])\s{0,4},\s{0,4}(?=\\?[\"'])(?!\\?[\"'][\w.-]{1,40}\\?[\"']\s{0,4}:))"
    # b"value", Some("value"), SecretStr('value'), {"value": "value"
    r"(?:(?:[bruf]{1,2}|[A-Za-z][\w.:]{0,30}\(|\{\s{0,4}[\"']value[\"']\s?:\s?)(?=[\"']))?\\?[\"']?"
)
_QUOTED: Final = r"(?<=\")[^\"\\\n]+(?=\\?\")|(?<=')[^'\\\n]+(?=\\?')"
_BARE: Final = r"(?:[^\s\"',;&\\]|\\[^\"'\s]|[,;&](?=[^\s,;&\"'])(?![\w.-]{1,40}=))"
_VALUE: Final = rf"(?:{_QUOTED}|{_BARE}{{4,}})"
_SOME: Final = rf"(?!(?:yes|no|not|true|false|none|null)\b)(?:{_QUOTED}|{_BARE}{{2,}})"
_LAST: Final = r"\\?[\"')]?\]?(?:\s\([^()\n]{1,30}\))?"
"""What may stand between a name and its sign: the end of a string, of a subscript."""

_CLAUSE: Final = (
    r"(?:\s{1,4}(?:for|of)(?:\s{1,4}user)?\s{1,4}[^\s:]{1,60})?"
    r"(?:\s{1,4}(?:is|was|are|es|ist|est|as|to|now|set|used|provided|given|supplied|entered|received)){0,3}"
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
        rf"(?P<kept>authorization{_LAST}\s{{0,8}}[=:]\s{{0,8}}b?\\?[\"']?(?:[a-z]{{3,12}}\s{{1,8}})?)"
        rf"(?P<value>{_VALUE})"
    ),
    # all values of a header, not the first alone
    (
        r"(?P<kept>cookie2?\s{0,4}:\s{0,4})(?P<value>[\w.%-]{1,80}=(?:\"[^\"\n]*\"|[^\s;\"'\n]*)"
        r"(?:;\s{0,4}[\w.%-]{1,80}(?:=(?:\"[^\"\n]*\"|[^\s;\"'\n]*))?)*)"
    ),
    # <token>value</token>, name="password" value="value"
    rf"(?P<kept>token{_TAIL}>)(?P<value>[^<>\n]+)(?=</)",
    (
        rf"(?P<kept>\b(?:name|key)[\"']?\s{{0,4}}[=:]\s{{0,4}}[\"']?[\w.-]{{0,60}}(?:{_WORDS}|token|_pass)[\w.-]{{0,20}}"
        r"[\"']?,?\s{1,4}[\"']?value[\"']?\s{0,4}[=:]\s{0,4})"
        r"(?P<value>(?<=[\"'])[^\"'\n]+|\"[^\"\n]+|'[^'\n]+|[^\s\"',}]+)"
    ),
    # the same for tokens; models have harmless ones: a mere number, </s> or <|pad|>. What is
    # assigned to in its turn is a name
    (
        rf"(?P<kept>token{_LAST}{_SIGN})(?![\d.,]+(?!\S)|<\W?\w{{1,40}}\W?>|[\w.-]{{1,60}}\s?=\s)"
        rf"(?P<value>{_VALUE})"
    ),
    # pw=value, "pass": "value"; PWD=/a/path is a working directory
    (
        r"(?P<kept>(?<![A-Za-z])(?:pass|pw|pwd|psw|_auth)"
        rf"(?:=|\s{{1,4}}=\s{{1,4}}(?=[\"'])|\\?[\"']\s{{0,8}}:\s{{0,8}}|:\s{{1,4}}(?=[^\s\"']{{0,40}}[\d!@#$%^&*]|[\"']))\\?[\"']?)"
        rf"(?![\d.,]+(?!\S)|/)(?P<value>{_VALUE})"
    ),
    # pw value, pass for x is value
    (
        r"(?P<kept>\b(?:(?:pw|pwd|psw)(?:\s(?:is|was))?|pass(?:\s[\w.-]{1,20}){0,4}\s(?:is|was))\s)"
        r"(?P<value>(?=[A-Za-z_-]{0,60}[\d!@#$%^&*+?~])(?=[^\sA-Za-z]{0,60}[A-Za-z])[^\s\"'`/=]{5,})(?!\S)"
    ),
    r"(?P<kept>[\"']auth(?:token)?[\"']\s{0,8}:\s{0,8}[\"'])(?P<value>[^\"'\n]{8,})",
    # --db-pass value, --wandb-key value, --dbPassword value
    (
        r"(?<![\w.-])(?P<kept>--?"
        rf"(?:(?:[\w.-]{{0,80}}[_.-])?(?:{_SHORT})|[\w.-]{{0,80}}(?:{_WORDS})|(?:store|key|src|user|db)pass)s?"
        r"(?:-command)?(?:=|\s{1,8})\\?[\"']?)(?!-|[\d.,]{1,6}(?!\S)|\\?[\"']?\s)"
        r"(?P<value>(?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"']+)"
    ),
    (
        rf"(?P<kept>pass ?phrase{_CLAUSE}\s{{1,4}}(?:is|was)\s{{1,4}})"
        rf"(?!(?:{_SAYS})\b)(?P<value>[^\"'\n]+)"
    ),
    # .netrc, on one line or on several
    r"(?P<kept>\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4})(?P<value>\S+)",
    (
        rf"\A(?P<kept>[ \t]{{0,40}}(?:{_WORDS})[ \t]{{1,8}})(?!(?:{_SAYS})\b)"
        r"(?P<value>\S+)(?=\s{0,8}\Z)"
    ),
    # a line of a configuration, as a file or behind a log's own words has it: bind_pass = value
    (
        r"(?:\A|(?<=[:\])>] ))"
        r"(?P<kept>[ \t>$+-]{0,40}[\w.\[\]\"'$-]{0,80}(?:pass|pw|pwd|psw|psk|authtok)[\"']?\]?"
        r"[ \t]{0,20}[:=][ \t]{0,20}[\"']?)"
        rf"(?![\d.,]+[\"';]?\Z|/|(?:{_SAYS}|ok|done|true|false|yes)\b)"
        r"(?P<value>(?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"']{2,})(?=[\"']?;?\s{0,8}\Z)"
    ),
)

NAMED: Final = (
    # As in ASSIGNED; each begins with one of `WORDS`.
    # NAME_SECRET=value, "password": "value", --api-key value, ("password", "value")
    rf"(?P<kept>(?:{_WORDS}){_TAIL}{_LAST}{_SIGN})(?P<value>{_SOME})",
    # <password>value</password>
    rf"(?P<kept>(?:{_WORDS}){_TAIL}>)(?P<value>[^<>\n]+)(?=</)",
    # a sentence that asks for a key, and what was typed
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})[^:\n]{{1,120}}:\s{{1,4}})"
        r"(?P<value>(?=[A-Za-z+/=_-]{0,60}\d)(?=[\d+/=_-]{0,60}[A-Za-z])[\w+/=-]{20,})(?![\w.:/])"
    ),
    # password 'value', passphrase is "value", API key provided: value, the password of x was value
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC}){_TAIL}{_CLAUSE}[:,]?\s{{1,4}}\\?[\"'`])"
        r"(?P<value>(?<=\")[^\"\\\n]+|(?<=')[^'\\\n]+|(?<=`)[^`\\\n]+)"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC}){_TAIL}{_CLAUSE}"
        rf"(?:(?<=\sis)|(?<=\swas)|(?<=\sare)|(?<=\sto)|(?<=ed)|(?<=given)|(?<=\ses)|(?<=\sist)|(?<=\sest)):?\s{{1,4}})"
        rf"(?!(?:{_SAYS})\b)(?P<value>[^\s\"']{{3,}})"
    ),
    # the same with some words between; then it has to look like one
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})\s(?:for|of|on|in|to)(?:\s[^\s:=]{{1,30}}){{1,4}}\s?[:=]\s{{1,4}}[\"'`]?)"
        r"(?P<value>(?=[A-Za-z_-]{0,60}[\d!@#$%^&*+?~])(?=[^\sA-Za-z]{0,60}[A-Za-z])[^\s\"'`]{6,})"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})[^\n]{{1,200}}?[\"'])(?P<value>[0-9a-f]{{32,64}})(?=[\"'])"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})(?:\s[\w'-]{{1,20}}){{1,3}}\s(?:is|was):?\s{{1,4}}[\"'`]?)"
        r"(?P<value>(?=[A-Za-z_-]{0,60}[\d!@#$%^&*+?~])(?=[^\sA-Za-z]{0,60}[A-Za-z])[^\s\"'`]{6,})"
    ),
    (
        rf"(?P<kept>(?:{_WORDS}|{_AUTHENTIC})s?\s{{1,4}})"
        r"(?=[^\s\"']{0,60}[\d!@#$%^&*+?~])(?![/(\[{]|[\w-]{1,20}://)(?P<value>[^\s\"',;]{4,})"
    ),
)

WORDS: Final = f"{_WORDS}|{_AUTHENTIC}"
"""Where a line has none of these, nothing of `NAMED` is in it."""

_KEY: Final = r"[A-Za-z0-9 ]{0,40}(?:PRIVATE|Static|SECRET) (?i:KEY)[A-Za-z0-9 ]{0,10}----"
_INDENTED: Final = r"(?P<value>(?:[ ]{1,20}\S[^\n]*(?:\n|\Z))+)"

BLOCKS: Final = (
    # Key material and YAML, what has several lines; each behind what is found fast where it is.
    ("BEGIN ", rf"----[- ]BEGIN {_KEY}.*?(?:----[- ]END {_KEY}-?|\Z)"),
    (
        "Private-Lines",
        r"(?P<kept>Private-Lines: \d{1,4}\s{1,2})(?P<value>(?:[A-Za-z0-9+/=]{1,80}(?:\s|\Z))+)",
    ),
    # lines of a key whose beginning was cut off
    (
        "END ",
        (
            r"(?<![\w+/=.-])(?!/)(?=[0-9+/a-z]{0,75}[A-Z])(?=[0-9+/A-Z]{0,75}[a-z])"
            r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})(?![\w+/=.-])"
        ),
    ),
    (
        r":[ ]?[|>][+-]?\d?[ \t]{0,8}\n",
        (
            rf"(?P<kept>(?i:(?:{_WORDS}|token|\.key){_TAIL})[\"']?[ ]?:"
            r"[ ]?[|>][+-]?\d?[ \t]{0,8}\n)"
            r"(?P<value>(?:[ \t]+\S[^\n]*(?:\n|\Z))+)"
        ),
    ),
    # <name>a.secret.key</name> <value>value</value>; a variable of Terraform
    (
        "</name>",
        (
            rf"(?P<kept><name>[\w.-]{{0,80}}(?i:{_WORDS}|token|[._]key)[\w.-]{{0,20}}</name>"
            r"\s{0,40}<value>)(?P<value>[^<]+)"
        ),
    ),
    (
        r'variable\s"',
        (
            rf"(?P<kept>\bvariable\s\"[\w-]{{0,60}}(?i:{_WORDS}|token|_pass|_key)[\w-]{{0,20}}\"\s?\{{"
            r"[^{}]{0,400}?\bdefault\s{0,20}=\s{0,4}\")(?P<value>[^\"\n]+)"
        ),
    ),
    # a Secret of Kubernetes: all of its data; kubectl prints it before the kind
    (
        "kind: Secret",
        (
            r"(?P<kept>\bkind: Secret\b(?:\n(?!---)[^\n]{0,300}){0,40}?"
            r"\n(?:stringData|data):[ ]*\n)"
            rf"{_INDENTED}"
        ),
    ),
    (
        "kind: Secret",
        (
            rf"(?P<kept>(?:\A|(?<=\n))(?:stringData|data):[ ]*\n){_INDENTED}"
            r"(?=(?:(?!---)[^\n]{0,300}\n){0,40}?kind: Secret\b)"
        ),
    ),
    (
        r"\n[ \t]{0,40}value:",
        (
            rf"(?P<kept>\bname: ?[\"']?[\w.-]{{0,60}}(?i:{_WORDS}|token|_pass|_key)[\w.-]{{0,20}}"
            r"[\"']?\n[ \t]{0,40}value: ?[\"']?)(?P<value>[^\"'\n]+)"
        ),
    ),
)

HINTS: Final = (
    "@", "key", "token", "auth", "secret", "pass", "pw", "psw", "cred", "cookie", "dsn",
    "shared", "connection", "sessid", "sessionid", "seed", "mnemonic", "bearer", "basic", "eyj",
    "sas", "jwt", "sig", "pin", "code=", "code%3d", "hook", "/services/", "bot", ":aa",
    "atlasv1", "q~", "-us", "$", "pat", "echo ", "printf", "add-mask", "identified", ":54",
    ":*:", "/t/", "munge:", "<<<", "simple_bind", "alias set", '"d"', "'d'", "密", "口令",
    "令牌", "暗号", "암호", "clave", "parola", "şifre", "heslo", "passord", "adgangs",
    "salasana", "jelszó", "mật khẩu", "kata sandi", "كلمة", "סיסמ", "पासवर्ड", "κωδικός",
    "รหัส", "e code", "ion code", "ity code", "up code", "ing code", "2fa", "mfa", "otp ",
    "login:", "log-in:", "log in:", "login =", "client(", "schlüssel", "キー", " 키", "sleutel",
    "nyckel", "klucz", "clé d", "ключ", "chiave", "chave", "jeton", "токен", "トークン",
    "zugangsd", "identifiants", "psk", " -u ", "send ", "send_", "networkcred", "sqlldr",
    "sqlplus", "expdp", "impdp", "rman", "-literal", "パスワード", "비밀번호", "kennwort",
    "contrase", "senha", "hasło", "парол", "wachtwoord", "lösenord",
)  # fmt: skip
"""Where nothing of this stands in small letters, nor a provider's prefix, nothing needs a look."""
