# ferrio on every client, as a system job: nomad job run packaging/ferrio.nomad.hcl
job "ferrio" {
  type = "system"

  update {
    max_parallel = 1
    stagger      = "30s"
  }

  group "ferrio" {
    network {
      port "http" { static = 9999 }
      port "admin" { static = 9998 }
      port "metrics" { static = 9997 }
    }

    task "ferrio" {
      driver = "docker"

      config {
        image        = "ferrio:0.1.0"
        network_mode = "host"
        args         = ["-cfg", "/local/ferrio.properties"]
      }

      # Longer than grace period and wait together.
      kill_timeout = "30s"

      template {
        destination = "local/ferrio.properties"
        data        = <<-EOF
          proxy.addr = :9999,:9997;proto=prometheus
          ui.addr = :9998
          ui.access = ro
          registry.consul.addr = {{ env "attr.unique.network.ip-address" }}:8500
          proxy.deregistergraceperiod = 5s
          proxy.shutdownwait = 20s
          metrics.target = prometheus
        EOF
      }

      resources {
        cpu    = 500
        memory = 256
      }
    }
  }
}
