"""Configurations that are data: Envoy, Caddy, and the table of Traefik (JSON is YAML).

All: logs off, one core's worth of workers, more kept connections to the origin than there are clients.
"""

import json

MANY = 65_536


def envoy(at):
    scenario = at.scenario
    cluster = {
        "name": "origin", "type": "STATIC", "connect_timeout": "5s",
        "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(at.origin)}}]}]},
        "circuit_breakers": {"thresholds": [{"max_connections": MANY, "max_pending_requests": MANY, "max_requests": MANY}]},
    }
    if scenario.back == "h2c":
        cluster["typed_extension_protocol_options"] = {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": typed("upstreams.http.v3.HttpProtocolOptions"), "explicit_http_config": {"http2_protocol_options": {}}}}
    if scenario.front == "tcp":
        network = {"name": "envoy.filters.network.tcp_proxy", "typed_config": {
            "@type": typed("filters.network.tcp_proxy.v3.TcpProxy"), "stat_prefix": "bench", "cluster": "origin"}}
    else:
        route = [{"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]
        hosts = [{"name": host, "domains": [host], "routes": route} for host in at.hosts()] or [{"name": "all", "domains": ["*"], "routes": route}]
        network = {"name": "envoy.filters.network.http_connection_manager", "typed_config": {
            "@type": typed("filters.network.http_connection_manager.v3.HttpConnectionManager"), "stat_prefix": "bench", "use_remote_address": True,
            "route_config": {"virtual_hosts": hosts}, "stream_idle_timeout": "0s", "upgrade_configs": [{"upgrade_type": "websocket"}],
            "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": typed("filters.http.router.v3.Router")}}]}}
    chain = {"filters": [network]}
    if scenario.front == "https":
        pair = {"certificate_chain": {"filename": f"{at.pem}-cert.pem"}, "private_key": {"filename": f"{at.pem}-key.pem"}}
        chain["transport_socket"] = {"name": "envoy.transport_sockets.tls", "typed_config": {
            "@type": typed("transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {"tls_certificates": [pair], "alpn_protocols": ["h2", "http/1.1"],
                                   "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}}}}
    listener = {"name": "front", "address": socket(at.port), "filter_chains": [chain], "tcp_backlog_size": 4096}
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


def socket(port):
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def typed(name):
    return f"type.googleapis.com/envoy.extensions.{name}"


def caddy(at):
    scenario = at.scenario
    transport = {"protocol": "http", "keep_alive": {"max_idle_conns": 0, "max_idle_conns_per_host": 1024, "idle_timeout": "1h"}}
    if scenario.back == "h2c":
        transport["versions"] = ["h2c"]
    handler = {"handler": "reverse_proxy", "upstreams": [{"dial": f"127.0.0.1:{at.origin}"}], "transport": transport}
    route = {"handle": [handler]} | ({"match": [{"host": at.hosts()}]} if scenario.routes else {})
    server = {"listen": [f"127.0.0.1:{at.port}"], "automatic_https": {"disable": True}, "routes": [route], "idle_timeout": "1h",
              "protocols": ["h1", "h2", "h2c"] if scenario.front == "h2c" else ["h1", "h2"]}
    apps = {"http": {"servers": {"front": server}}}
    if scenario.front == "https":
        server["tls_connection_policies"] = [{}]
        apps["tls"] = {"certificates": {"load_files": [{"certificate": f"{at.pem}-cert.pem", "key": f"{at.pem}-key.pem"}]}}
    return json.dumps({"admin": {"disabled": True}, "logging": {"logs": {"default": {"level": "ERROR"}}}, "apps": apps})


def traefik(at, turn=0):
    """`turn` names one more host, so that the table of each turn is another one."""
    scenario = at.scenario
    if scenario.front == "tcp":
        return json.dumps({"tcp": {"routers": {"all": {"rule": "HostSNI(`*`)", "service": "origin", "entryPoints": ["front"]}},
                                   "services": {"origin": {"loadBalancer": {"servers": [{"address": f"127.0.0.1:{at.origin}"}]}}}}})
    scheme = "h2c" if scenario.back == "h2c" else "http"
    rules = [f"Host(`{host}`)" for host in at.hosts()] + ([f"Host(`turn{turn}.bench.test`)"] if turn else []) or ["PathPrefix(`/`)"]
    tls = {"tls": {}} if scenario.front == "https" else {}
    routers = {f"r{n}": {"rule": rule, "service": "origin", "entryPoints": ["front"]} | tls for n, rule in enumerate(rules)}
    table = {"http": {"routers": routers, "services": {"origin": {"loadBalancer": {
        "passHostHeader": True, "servers": [{"url": f"{scheme}://127.0.0.1:{at.origin}"}]}}}}}
    if tls:
        pair = {"certFile": f"{at.pem}-cert.pem", "keyFile": f"{at.pem}-key.pem"}
        table["tls"] = {"certificates": [pair], "stores": {"default": {"defaultCertificate": pair}}}
    return json.dumps(table)
