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
    "FORMS",
    "HINTS",
    "NAME",
    "NAMED",
    "NUMBER",
    "PROGRAMS",
    "STRONG_NAME",
    "WORDS",
]

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
            r"(?:(?<=[?&#])|(?<=%3F)|(?<=%26))(?P<kept>[\w.-]{0,60}(?:sig|signature|token|key|secret|passw?|passwd|password|"
            r"credential|auth|key-?id|code)(?:=|%3D))(?P<value>(?:[^\s&#\"'<>\\%]|%(?!26))+)"
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
    # a part of a path: /key/X, /token/X; conda's channels have /t/xx-X/
    (
        r"(?P<kept>/(?:key|token|secret|apikey|api-key|access_token)/)(?P<value>(?=[^\s/]{0,60}\d)[\w~.-]{10,})",
        re.IGNORECASE,
    ),
    (r"(?P<kept>/t/)(?P<value>[a-z]{2}-[\w-]{16,})", 0),
    (
        r"(?P<kept>[\"'](?:d|k|p|q|dp|dq|qi)[\"']\s{0,4}:\s{0,4}[\"'])(?P<value>[\w-]{22,})",
        0,
    ),  # JWK
    # "key" alone is a word of its own; what is long and mixed behind it is none
    (
        (
            r"(?<![\w-])(?P<kept>key[\"']?\s{0,4}[=:]\s{0,4}[\"']?)"
            r"(?P<value>(?=[A-Za-z+/=]{0,60}\d)(?=[\d+/=]{0,60}[A-Za-z])[A-Za-z0-9+/]{24,}={0,2})(?![\w-])"
        ),
        0,
    ),
    # as environments have it; mere words and numbers of such names are settings
    (
        (
            r"(?<![A-Z0-9_])(?P<kept>[A-Z][A-Z0-9_]{0,60}(?<!_P)_KEY[\"']?\s{0,4}[=:]\s{0,4}[\"']?)"
            r"(?P<value>(?!/|0x)(?=[^\s\"']{0,60}\d)(?=[^\s\"']{0,60}[A-Za-z])[^\s\"',;]{16,})"
        ),
        0,
    ),
    (
        (
            r"(?<![A-Z0-9_])(?P<kept>[A-Z][A-Z0-9_]{0,60}_(?:KEY|TOKEN|SECRET|PASSWORD)\s{1,4})"
            r"(?P<value>(?=[^\s\"']{0,60}\d)(?=[^\s\"']{0,60}[A-Za-z])[\w+/.=-]{20,})"
        ),
        0,
    ),
    (r"(?<![A-Za-z])MUNGE:[\w+/=]{16,}:?", 0),
    (r"(?<=\bPIN is )[\w-]*\d[\w-]{3,}|(?<=\bPIN: )[\w-]*\d[\w-]{3,}", 0),
    # bind('cn=x', 'password'), login("user", "password")
    (
        (
            r"(?P<kept>(?:simple_bind(?:_s)?|\blogin|authenticate|\.auth)\(\s{0,4}[\"'][^\"'\n]{0,200}[\"'],\s{0,4}[\"'])"
            r"(?P<value>[^\"'\n]+)"
        ),
        0,
    ),
    (r"(?P<kept>(?<=\s)<<<\s{0,4}[\"'])(?P<value>[^\"'\n]+)", 0),  # a here string
    (r"(?P<kept>\balias set \S{1,80} \S{1,200} )(?P<value>\S+(?: \S+)?)", 0),  # mc
    # in other tongues; here, for letters beyond ASCII would slow the patterns of `ASSIGNED`
    (
        (
            r"(?P<kept>(?:密码|密碼|口令|密钥|令牌|パスワード|비밀번호|[Pp]asswort|[Kk]ennwort|"
            r"[Mm]ot de passe|[Cc]ontrase(?:ñ|n)a|[Ss]enha|[Hh]asło|[Пп]ароль|"
            r"[Ww]achtwoord|[Ll]ösenord)"
            r"\s{0,4}(?:[:\uff1a=\uff1d是为は]|\s(?:ist|est|es|é|is))\s{0,4}[\"'“「]?)"
            r"(?P<value>[^\s\"'\uff0c。、”」]{2,})"
        ),
        0,
    ),
    # what CI is told to hide
    (r"(?P<kept>::add-mask::|issecret=true\])(?P<value>\S[^\n]*)", re.IGNORECASE),
    # a line of .pgpass
    (
        r"(?<!\S)(?P<kept>[\w.*-]{1,200}:(?:54\d\d|\*):[\w.*-]{1,60}:[\w.*-]{1,60}:)(?P<value>\S+)",
        0,
    ),
    # what is piped to a program that asks for a password
    (
        (
            r"(?P<kept>\b(?:echo|printf)\s{1,4}(?:-\w{1,3}\s{1,4})?\\?[\"']?)(?P<value>[^|\n\"']{2,200})"
            r"(?=\\?[\"']?\s{0,4}\|[^|\n]{0,120}"
            r"(?:-?-stdin|sudo -S|passwd|with-token|passphrase-fd|login))"
        ),
        0,
    ),
    (r"(?P<kept>\bhtpasswd\s(?=\S{0,60}b)(?:\S{1,200}\s{1,4}){1,8})(?P<value>[^\s-]\S*)", 0),
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
    r"\s{0,8}(?:=>|:=|==?|[:\uff1a\uff1d是为])\s{0,8}"
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
        rf"(?P<kept>authorization{_LAST}\s{{0,8}}[=:]\s{{0,8}}\\?[\"']?(?:[a-z]{{3,12}}\s{{1,8}})?)"
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
        rf"(?:(?:[\w.-]{{0,80}}[_.-])?(?:{_SHORT})|[\w.-]{{0,80}}(?:{_WORDS})|(?:store|key|src|user|db)pass)s?"
        r"(?:=|\s{1,8})\\?[\"']?)(?!-|[\d.,]{1,6}(?!\S)|\\?[\"']?\s)"
        r"(?P<value>(?<=\")[^\"\n]+|(?<=')[^'\n]+|[^\s\"']+)"
    ),
    (
        rf"(?P<kept>pass ?phrase{_CLAUSE}\s{{1,4}}(?:is|was)\s{{1,4}})"
        rf"(?!(?:{_SAYS})\b)(?P<value>[^\"'\n]+)"
    ),
    r"(?P<kept>\blogin\s{1,4}\S{1,80}\s{1,4}password\s{1,4})(?P<value>\S+)",  # .netrc
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
    "@", "key", "token", "auth", "secret", "pass", "pw", "psw", "cred", "cookie", "dsn", "shared",
    "connection", "sessid", "sessionid", "seed", "mnemonic", "bearer", "basic", "eyj", "sas", "jwt",
    "sig", "pin", "code=", "code%3d", "hook", "/services/", "bot", ":aa", "atlasv1", "q~", "-us",
    "$", "pat", "echo ", "printf", "add-mask", "identified", ":54", ":*:", "/t/", "munge:", "<<<",
    "simple_bind", "alias set", '"d"', "'d'", "密", "口令", "令牌", "パスワード", "비밀번호",
    "kennwort", "contrase", "senha", "hasło", "парол", "wachtwoord", "lösenord",
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
    "influx": "-t", "openai prefect swanlab ossutil": "-k", "coscmd": "-s",
    "wandb": "login", "vault": "login",
    "cargo": "login", "rclone": "obscure", "ngrok": "authtoken add-authtoken", "gh": "-t",
    "cloudflared": "install", "npm": "_authToken", "tailscale": "--authkey", "xfreerdp": "/p",
    "lftp": "-u", "ssh-keygen": "-N -P", "keytool jarsigner": "-storepass -keypass",
}  # fmt: skip
"""Programs whose options are too short to tell: what follows them is a secret, glued or not."""
PROGRAMS: Final = {
    name: tuple(options.split()) for names, options in _FOLLOWED.items() for name in names.split()
}
