"""A Consul cluster of three servers and a client agent, each on a loopback address of its own, with access control."""

import json
import pathlib
import uuid

from consul import Consul, free_port

TOKEN = str(uuid.uuid4())


class Node(Consul):
    """`name` is that of the node. Stops and comes back as its base does."""

    def __init__(self, binary, folder, name, address, ports, others, server):
        self.binary, self.folder, self.mode = binary, pathlib.Path(folder) / name, []
        self.folder.mkdir()
        self.name, self.host, self.token = name, address if server else "127.0.0.1", TOKEN
        self.port = ports["http"]
        config = {
            "ports": {"https": -1, "grpc": -1, "dns": -1, "serf_wan": -1, **ports}, "server": server, "bind_addr": address,
            "client_addr": self.host, "node_name": name, "data_dir": str(self.folder / "data"), "log_level": "warn",
            "disable_update_check": True, "performance": {"raft_multiplier": 1}, "leave_on_terminate": False,
            # The same after its data are gone: two nodes of one name are none.
            "node_id": str(uuid.uuid4()),
            "retry_join": [f"{other}:{ports['serf_lan']}" for other in others], "retry_interval": "1s",
            "acl": {"enabled": True, "default_policy": "deny", "token_ttl": "1s", "policy_ttl": "1s",
                    "tokens": {"agent": TOKEN, "default": "", **({"master": TOKEN} if server else {})}},
        }
        if server:
            config["bootstrap_expect"] = 3
        (self.folder / "consul.json").write_text(json.dumps(config))
        self.start()


class Cluster:
    def __init__(self, binary, folder):
        addresses = [f"127.0.0.{n}" for n in (2, 3, 4)]
        ports = {name: free_port() for name in ("http", "server", "serf_lan")}
        self.servers = [Node(binary, folder, f"server{n}", address, ports, addresses, True) for n, address in enumerate(addresses)]
        # The name that `wait_ready` asks about.
        self.agent = Node(binary, folder, "acceptance", "127.0.0.5", {**ports, "http": free_port()}, addresses, False)
        self.agent.wait_ready()

    def leader(self):
        for server in self.servers:
            try:
                leader = json.loads(server.ok("GET", "/v1/status/leader")).split(":")[0]
            except (OSError, RuntimeError):
                continue
            found = [server for server in self.servers if server.host == leader]
            if found:
                return found[0]
        raise RuntimeError("there is no leader")

    def ruled(self, rules):
        """A policy with these rules and a token with it: (id of the policy, accessor, token)."""
        name = f"p{uuid.uuid4().hex[:8]}"
        policy = json.loads(self.agent.ok("PUT", "/v1/acl/policy", {"Name": name, "Rules": rules}))["ID"]
        token = json.loads(self.agent.ok("PUT", "/v1/acl/token", {"Policies": [{"ID": policy}]}))
        return policy, token["AccessorID"], token["SecretID"]

    def rule(self, policy, rules):
        name = json.loads(self.agent.ok("GET", f"/v1/acl/policy/{policy}"))["Name"]
        self.agent.ok("PUT", f"/v1/acl/policy/{policy}", {"ID": policy, "Name": name, "Rules": rules})

    def end(self):
        for node in [self.agent, *self.servers]:
            node.process.kill()
            node.process.wait()
