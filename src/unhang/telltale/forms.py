"""What gives a secret away: its own form, or the form of what stands around it.

As in `tells`: tables only, and every pattern linear in the length of a text.
"""

from __future__ import annotations

import re
from typing import Final

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
    # hooks: the path alone lets one write there
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
    # behind the bare word, as in "using key X": longer, for caches have keys too
    (
        (r"(?<=\bkey )(?=[A-Za-z]{0,60}\d)(?=\d{0,60}[A-Za-z])[A-Za-z0-9]{32,}(?![\w/-])"),
        re.IGNORECASE,
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
    # bind('cn=x', 'password'), login("user", "password"), auth=("user", "password")
    (
        (
            r"(?P<kept>(?:simple_bind(?:_s)?|\blogin|authenticate|auth=?|UserPassword|Credentials?|"
            r"PasswordToken)\(\s{0,4}[\"'][^\"'\n]{0,200}[\"'],\s{0,4}[\"'])"
            r"(?P<value>[^\"'\n]+)"
        ),
        0,
    ),
    (r"(?P<kept>(?<=\s)<<<\s{0,4}[\"'])(?P<value>[^\"'\n]+)", 0),  # a here string
    (r"(?P<kept>\balias set \S{1,80} \S{1,200} )(?P<value>\S+(?: \S+)?)", 0),  # mc
    # in other tongues; here, for letters beyond ASCII would slow the patterns of `ASSIGNED`
    (
        (
            r"(?P<kept>(?:密码|密碼|口令|密钥|密鑰|令牌|暗号|パスワード|비밀번호|암호|"
            r"[Pp]asswort|[Kk]ennwort|[Mm]ot de passe|[Cc]ontrase(?:ñ|n)a|[Ss]enha|[Hh]asło|"
            r"[Cc]lave (?:secreta|de (?:acceso|api))|[Pp]arola|[Şş]ifre(?:si)?|[Пп]ароль|[Hh]eslo|"
            r"[Ww]achtwoord|[Ll]ösenord|[Pp]assord|[Aa]dgangskode|[Ss]alasana|[Jj]elszó|"
            r"API[- ]?(?:Schlüssel|キー|키|sleutel|nyckel)|[Kk]lucz API|[Cc]lé d.API|[Кк]люч API|"
            r"[Cc]hia?ve (?:de |da )?API|[Cc]have (?:de |da )?API|[Jj]eton|[Тт]окен|トークン|"
            r"[Mm]ật khẩu|[Kk]ata sandi|كلمة (?:المرور|السر)|סיסמ[הא]|पासवर्ड|[Κκ]ωδικός|รหัสผ่าน)"
            r"(?:\s[^\s:=]{1,20}){0,3}?"
            r"\s{0,4}(?:[:\uff1a=\uff1d是为為は는은]|"
            r"\s(?:ist|lautet|est|es|é|è|is|to|jest|je|är|er|on|это))\s{0,4}[\"'“「]?)"
            r"(?P<value>[^\s\"'\uff0c。、”」]{2,})"
        ),
        0,
    ),
    # sent to phones
    (
        (
            r"(?P<kept>\b(?:one[ -]time|verification|security|backup|pairing|2fa|mfa|otp) "
            r"(?:code|pin)s?(?: is|:| was)?:? )(?P<value>(?=[\w-]{0,8}\d)[\w-]{4,40})"
        ),
        re.IGNORECASE,
    ),
    # login: name / password
    (
        (
            r"(?P<kept>\b(?:log[ -]?in|credentials|creds|zugangsdaten|identifiants|credenciais|"
            r"credenciales|credenziali)\s?[:=]\s?[\w.@-]{1,60} / )(?P<value>\S+)"
        ),
        re.IGNORECASE,
    ),
    # a long mixed word that a client, or what takes a token, is called with
    (
        (
            r"(?P<kept>(?:client|token|login|auth|api_?key)\([\"'])"
            r"(?P<value>(?=[A-Za-z_-]{0,60}\d)(?=[\d_-]{0,60}[A-Za-z])[\w-]{24,})(?=[\"'])"
        ),
        re.IGNORECASE,
    ),
    (
        (
            r"(?P<kept>(?:client|token|login|auth|api_?key)\([\"'][\w@.<>-]{1,80}[\"'],\s{0,4}[\"'])"
            r"(?P<value>(?=[A-Za-z_-]{0,60}\d)(?=[\d_-]{0,60}[A-Za-z])[\w-]{24,})(?=[\"'])"
        ),
        re.IGNORECASE,
    ),
    (r"(?P<kept>--from-literal[= ][\"']?[\w.-]{1,80}=)(?P<value>[^\s\"']+)", 0),  # kubectl
    # the word of a key alone, behind options
    (r"(?P<kept>\bwandb login(?:\s-\S{1,200}){1,8}\s)(?P<value>[0-9A-Za-z_]{40,})", 0),
    # name/password of Oracle's programs
    (
        (
            r"(?P<kept>\b(?:sqlplus|sqlldr|expdp|impdp|rman)\s(?:-\w{1,8}\s){0,3}\w{1,60}/)"
            r"(?P<value>[^\s@/\"']+)"
        ),
        0,
    ),
    (r"(?P<kept>\.auth\([\"'])(?P<value>[^\"'\n]+)(?=[\"']\))", 0),
    (r"(?P<kept>\s-U\s{1,4}[\"']?[\w.\\/@-]{1,60}%)(?P<value>[^\s\"']+)", 0),  # smbclient
    (
        r"(?P<kept>\bsend(?:_slow)?\s(?:--?\w{0,9}\s)?\")(?P<value>[^\"\n]{4,}?)(?=\\r\")",
        0,
    ),  # expect
    (
        (
            r"(?P<kept>\bsecrets? (?:set|put|create)\s[^\n]{0,80}?\s(?:--body|--value|-b|-v)[ =]"
            r"[\"']?)(?P<value>[^\s\"']+)"
        ),
        0,
    ),
    (r"(?P<kept>\bset\s[^\n]{0,60}\b(?:key|token|secret|password)\s-v\s)(?P<value>\S+)", 0),
    # what CI is asked to hide
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
    (r"(?<![\w-])AAAA[\w-]{7}:[\w-]{100,}", 0),  # Firebase
    (r"(?<![\w-])[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}", 0),  # Discord
    (r"(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)*", 0),  # JSON web tokens
    (r"(?<![\w.+/-])(?:eyJhcGlf|eyJhdXRo|eyJrIjoi)[\w+/=-]{16,}", 0),  # JSON in base64
    (r"(?<![\w.-])pat[A-Za-z0-9]{14}\.[0-9a-f]{64}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}", 0),
    (r"(?<![\w-])[\w~.-]{3}\dQ~[\w~.-]{30,}|(?<![\w-])[0-9a-f]{32}-us\d{1,2}\b", 0),
    (r"\$(?:[156y]|2[abxy]?|apr1|argon2\w{0,2}|scrypt|pbkdf2[\w-]{0,16})\$[\w./$,=+-]{8,}", 0),
    (
        (
            r"(?P<kept>\b(?:bearer|ntlm|negotiate)(?: |: ?))"
            r"(?P<value>(?=\S{0,40}[\d._~+/=-]|\S{20})[\w.~+/=-]{8,})"
        ),
        re.IGNORECASE,
    ),
    (r"(?<=\bbasic )(?=\S*[\d=])[A-Za-z0-9+/]{8,}={0,2}", re.IGNORECASE),
    (r"(?<=\bpass:)[^\s\"']{2,}", 0),  # openssl
)
