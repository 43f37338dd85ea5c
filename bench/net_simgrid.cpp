/*
 * The problems of net_flow.c on SimGrid (s4u, 3.32): bench/net_simgrid.sh
 * builds this where libsimgrid-dev is installed and runs both.
 *
 *   net_simgrid --op ring|a2a --hosts N [--bytes B] [--window W] [--jitter F]
 *
 * A star of hosts with a link up and a link down each; every message starts
 * from the completion of the one it waits for, which is SimGrid's fastest way
 * (no actors). Model CM02 without its TCP corrections: plain max-min.
 */
#include <simgrid/s4u.hpp>
#include <xbt/log.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <sys/resource.h>
#include <unordered_map>
#include <vector>

namespace sg = simgrid::s4u;

namespace
{

struct Problem {
    std::string op = "ring";
    int hosts = 64, window = 0;
    double bytes = 1 << 30, nic_Bps = 50e9, lat_s = 1e-6, jitter = 0;
};
struct Open {
    sg::CommPtr comm;
    int rank;
};

Problem p;
std::vector<sg::Host *> host;
std::unordered_map<const sg::Activity *, Open> open_comms;
std::deque<sg::CommPtr> ended; /* a Comm must outlive its own callback */
std::vector<int> sent, arrived, next_peer;
long n_messages = 0;

/* The hash of net_flow.c, so that both see the same sizes. */
double jitter_unit(uint64_t r, uint64_t s)
{
    uint64_t z = (r * 0x100000001b3u * 0x100000001b3u) ^ s;
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * (1.0 / 9007199254740992.0);
}

void send(int from, int to, int step)
{
    double bytes = p.bytes / p.hosts;
    if (p.jitter > 0) {
        double u = jitter_unit(static_cast<uint64_t>(from),
                               static_cast<uint64_t>(step));
        bytes *= 1 - p.jitter + 2 * p.jitter * u;
    }
    auto comm = sg::Comm::sendto_init(host[from], host[to]);
    comm->set_payload_size(static_cast<uint64_t>(bytes < 1 ? 1 : bytes + .5));
    open_comms[comm.get()] = {comm, from};
    n_messages++;
    comm->vetoable_start();
}

void ring_try(int r)
{
    if (sent[r] < 2 * (p.hosts - 1) && arrived[r] >= sent[r]) {
        send(r, (r + 1) % p.hosts, sent[r]);
    }
}

void a2a_next(int r)
{
    int k = next_peer[r];
    if (k < p.hosts) {
        next_peer[r] = k + 1;
        send(r, (r + k) % p.hosts, k);
    }
}

void on_done(const sg::Activity &activity)
{
    auto it = open_comms.find(&activity);
    if (it == open_comms.end()) {
        return;
    }
    int r = it->second.rank, q = (r + 1) % p.hosts;
    ended.push_back(it->second.comm);
    if (ended.size() > 4096) {
        ended.pop_front();
    }
    open_comms.erase(it);
    if (p.op == "a2a") {
        a2a_next(r);
        return;
    }
    arrived[q] = ++sent[r];
    ring_try(r);
    if (sent[q] == sent[r]) {
        ring_try(q);
    }
}

void build_star()
{
    auto *zone = sg::create_star_zone("net");
    for (int i = 0; i < p.hosts; i++) {
        std::string n = std::to_string(i);
        auto *h = zone->create_host("h" + n, 1e9);
        auto *l = zone->create_split_duplex_link("l" + n, p.nic_Bps)
                      ->set_latency(p.lat_s / 2);
        zone->add_route(h->get_netpoint(), nullptr, nullptr, nullptr,
                        {{l, sg::LinkInRoute::Direction::UP}}, true);
        host.push_back(h);
    }
    zone->seal();
}

double cpu_s()
{
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

bool read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        std::string k = argv[i];
        double x = std::strtod(argv[i + 1], nullptr);
        if (k == "--op") {
            p.op = argv[i + 1];
        } else if (k == "--hosts") {
            p.hosts = static_cast<int>(x);
        } else if (k == "--bytes") {
            p.bytes = x;
        } else if (k == "--window") {
            p.window = static_cast<int>(x);
        } else if (k == "--jitter") {
            p.jitter = x;
        } else {
            std::fprintf(stderr, "unknown option %s\n", k.c_str());
            return false;
        }
    }
    return p.hosts >= 2;
}

} /* namespace */

int main(int argc, char **argv)
{
    sg::Engine engine(&argc, argv);
    if (!read_options(argc, argv)) {
        return 2;
    }
    xbt_log_control_set("xbt_cfg.threshold:warning");
    for (const char *s :
         {"network/model:CM02", "network/TCP-gamma:0", "network/crosstraffic:0",
          "network/bandwidth-factor:1", "network/latency-factor:1",
          "network/weight-S:0"}) {
        sg::Engine::set_config(s);
    }
    build_star();
    double begin_s = cpu_s();
    sent.assign(p.hosts, 0);
    arrived.assign(p.hosts, 0);
    next_peer.assign(p.hosts, 1);
    sg::Activity::on_completion_cb(on_done);
    int rounds = p.op == "ring" ? 1 : p.window ? p.window : p.hosts - 1;
    for (int i = 0; i < rounds; i++) {
        for (int r = 0; r < p.hosts; r++) {
            p.op == "ring" ? ring_try(r) : a2a_next(r);
        }
    }
    engine.run();
    double used_s = cpu_s() - begin_s;
    rusage u;
    getrusage(RUSAGE_SELF, &u);
    ended.clear();
    std::printf("{\"tool\":\"simgrid\",\"op\":\"%s\",\"hosts\":%d,"
                "\"bytes\":%.0f,\"window\":%d,\"jitter\":%g,\"msgs\":%ld,"
                "\"sim_us\":%.3f,\"cpu_s\":%.4f,\"msgs_per_cpu_s\":%.0f,"
                "\"peak_rss_mb\":%.1f}\n",
                p.op.c_str(), p.hosts, p.bytes, p.window, p.jitter, n_messages,
                sg::Engine::get_clock() * 1e6, used_s,
                static_cast<double>(n_messages) / used_s,
                static_cast<double>(u.ru_maxrss) / 1024);
    return 0;
}
