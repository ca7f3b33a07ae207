"""Options of programs that are followed by a secret, as a table: they are too short to tell."""

from __future__ import annotations

from typing import Final

_FOLLOWED: Final = {
    "mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlsh mariadb mariadb-dump": "-p",
    "sshpass docker podman buildah nerdctl helm oras crane twine az kubectl 7z cqlsh": "-p",
    "mongo mongosh mongodump mongorestore": "-p",
    "ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ldappasswd ldapcompare ldapmodrdn": "-w",
    "beeline cypher-shell rabbitmqadmin rdesktop smbmap": "-p",
    "nmcli": "password wifi-sec.psk 802-11-wireless-security.psk", "tsql osql": "-P",
    "dvc": "password secret_access_key sas_token account_key", "etcdctl": "--user",
    "aws": "aws_secret_access_key aws_session_token default.aws_secret_access_key "
    "default.aws_session_token",
    "mosquitto_pub mosquitto_sub sqlcmd bcp ipmitool zip unzip": "-P",
    "curl": "-u -U --user --proxy-user -b --cookie --oauth2-bearer --tlspassword --proxy-pass",
    "http https": "-a --auth", "wget": "--http-password", "redis-cli": "-a", "snmpwalk": "-c -A -X",
    "smbclient": "-U", "rar": "-hp -p", "openssl": "-k -K -pass -passin -passout",
    "gpg": "--passphrase", "skopeo": "--creds", "influx": "-t",
    "openai prefect swanlab ossutil": "-k", "coscmd": "-s", "wandb": "login", "vault": "login",
    "cargo": "login", "rclone": "obscure", "ngrok": "authtoken add-authtoken", "gh": "-t",
    "cloudflared": "install", "npm": "_authToken", "tailscale": "--authkey", "xfreerdp": "/p",
    "lftp": "-u", "ssh-keygen": "-N -P", "keytool jarsigner": "-storepass -keypass",
}  # fmt: skip
"""Of programs: what follows these options is a secret, glued or not."""

PROGRAMS: Final = {
    name: tuple(options.split()) for names, options in _FOLLOWED.items() for name in names.split()
}
