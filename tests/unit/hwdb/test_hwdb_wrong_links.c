/*
 * Wrong rows of the link tables must not load, also not through an overlay:
 * one direction and both, a link and a GPU, a chip and a system taken for each
 * other, made consistent or not; rates without their encoding.
 */
#include "mw_test.h"

#include "hwdb_overlay.h"

#include <stdlib.h>

static const struct wrong cases[] = {
    /* ---- NVLink: one direction and both, link and GPU ---- */
    {"NVLink 4 at 100 GB/s per link x 18 = 900",
     "nvlink.csv",
     "generation,link_GBps_bidir,links_per_gpu,gpu_GBps_bidir" ORIGIN
     "4,100,18,900,H,a table of the web\n",
     2,
     "link_GBps_bidir",
     {"is 100", "2 x 25 GB/s per direction gives 50"}},
    {"the same where the total is looked at",
     "nvlink.csv",
     "generation,link_GBps_bidir,links_per_gpu,gpu_GBps_bidir" ORIGIN
     "4,100,18,900,H,a table of the web\n",
     2,
     "gpu_GBps_bidir",
     {"is 900", "18 links x 100 GB/s (both directions) gives 1800"}},
    {"NVLink 4 with both directions as one",
     "nvlink.csv",
     "generation,link_GBps_per_dir,link_GBps_bidir,gpu_GBps_per_dir,"
     "gpu_GBps_bidir" ORIGIN "4,50,100,900,1800,H,a table of the web\n",
     2,
     "link_GBps_per_dir",
     {"is 50, above the 26.5625",
      "2 lanes x 106.25 Gb/s / 8 in one direction"}},
    {"NVLink 4 of 9 links of twice the width",
     "nvlink.csv",
     "generation,lanes_per_link_per_dir,raw_link_GBps_per_dir,"
     "link_GBps_per_dir,link_GBps_bidir,links_per_gpu" ORIGIN
     "4,4,53.125,50,100,9,H,a table of the web\n",
     0,
     "link_GBps_per_dir",
     {"is 25 but a link of NVLink 4 has 50", "nvlink.csv:2"}},
    {"NVLink 5 at 900 GB/s per link",
     "nvlink.csv",
     "generation,link_GBps_per_dir,link_GBps_bidir" ORIGIN
     "5,450,900,M,an administration manual\n",
     2,
     "link_GBps_per_dir",
     {"is 450, above the 53.125", "one direction"}},
    {"lanes and signalling that do not give the raw rate",
     "nvlink.csv",
     "generation,lanes_per_link_per_dir" ORIGIN "3,8,M,made up for a test\n",
     2,
     "raw_link_GBps_per_dir",
     {"8 lanes x 50 Gb/s / 8 gives 50", "is 25"}},
    {"raw rate left out",
     "nvlink.csv",
     "generation,signalling_Gbps_per_lane,lanes_per_link_per_dir,"
     "raw_link_GBps_per_dir" ORIGIN "4,,,,M,made up for a test\n",
     2,
     "raw_link_GBps_per_dir",
     {"are needed", "announced"}},
    {"more overhead than any encoding has",
     "nvlink.csv",
     "generation,link_GBps_per_dir" ORIGIN "4,20,M,made up for a test\n",
     2,
     "link_GBps_per_dir",
     {"less than 90 %", "26.5625"}},

    /* ---- NVSwitch ---- */
    {"NVSwitch 2 with the 3.2 TB/s of NVSwitch 3",
     "nvswitch.csv",
     "generation,system,chip_GBps_bidir,chip_Tbps_bidir" ORIGIN
     "2,DGX A100 / HGX A100,3200,25.6,M,a table of the web\n",
     2,
     "chip_GBps_bidir",
     {"is 3200", "36 ports x 50 GB/s (both directions) gives 1800"}},
    {"the same, made consistent with 64 ports",
     "nvswitch.csv",
     "generation,system,ports_per_chip,chip_GBps_per_dir,chip_GBps_bidir,"
     "chip_Tbps_bidir" ORIGIN
     "2,DGX A100 / HGX A100,64,1600,3200,25.6,M,a table of the web\n",
     2,
     "gpus_per_domain",
     {"8 GPUs use 96 of the 384 ports of 6 chips", "third"}},
    {"DGX-2 with 8 GPUs in nvswitch.csv",
     "nvswitch.csv",
     "generation,system,gpus_per_domain" ORIGIN
     "1,DGX-2 / HGX-2,8,M,a table of the web\n",
     2,
     "aggregate_gpu_GBps_per_dir",
     {"is 2400", "8 GPUs x 150 GB/s per direction gives 1200"}},
    {"the same, made consistent",
     "nvswitch.csv",
     "generation,system,gpus_per_domain,bisection_GBps_per_dir,"
     "bisection_GBps_bidir,aggregate_gpu_GBps_per_dir,"
     "aggregate_gpu_GBps_bidir" ORIGIN
     "1,DGX-2 / HGX-2,8,600,1200,1200,2400,M,a table of the web\n",
     2,
     "gpus_per_domain",
     {"8 GPUs use 48 of the 216 ports of 12 chips", "more GPUs"}},
    {"chip rate taken for TB/s",
     "nvswitch.csv",
     "generation,system,chip_Tbps_bidir" ORIGIN
     "3,DGX H100 / HGX H100,3.2,M,a table of the web\n",
     2,
     "chip_Tbps_bidir",
     {"is 3.2", "3200 GB/s x 8 / 1000 gives 25.6"}},
    {"node bandwidth of all GPUs as bisection",
     "nvswitch.csv",
     "generation,system,bisection_GBps_per_dir,bisection_GBps_bidir" ORIGIN
     "3,DGX H100 / HGX H100,3600,7200,M,a table of the web\n",
     2,
     "bisection_GBps_per_dir",
     {"is 3600", "half of the 3600 GB/s of all GPUs gives 1800"}},
    {"too few chips for the links",
     "nvswitch.csv",
     "generation,system,chips_per_system" ORIGIN
     "4,HGX B200,1,M,made up for a test\n",
     2,
     "chips_per_system",
     {"1 chips x 72 ports cannot take the 144 links of 8 GPUs", NULL}},

    /* ---- other links ---- */
    {"PCIe 4 with both directions",
     "pcie.csv",
     "gen,x16_GBps_per_dir_theory" ORIGIN "4,64,M,a table of the web\n",
     2,
     "x16_GBps_per_dir_theory",
     {"is 64", "16 GT/s x 16 lanes / 8 x 0.9846 (128b/130b) gives 31.507"}},
    {"PCIe copies faster than the slot",
     "pcie.csv",
     "gen,x16_GBps_per_dir_achieved" ORIGIN "5,110,M,made up for a test\n",
     2,
     "x16_GBps_per_dir_achieved",
     {"is 110, above the 63.015", "per direction"}},
    {"PCIe with an encoding nobody knows",
     "pcie.csv",
     "gen,encoding" ORIGIN "5,9b/10b,M,made up for a test\n",
     2,
     "encoding",
     {"'9b/10b' is not known", "128b/130b"}},
    {"EDR at 25 GB/s one way",
     "infiniband.csv",
     "name,link_4x_GBps_per_dir" ORIGIN "EDR,25,M,a table of the web\n",
     2,
     "link_4x_GBps_per_dir",
     {"is 25", "100 Gb/s / 8 gives 12.5"}},
    {"QDR without its encoding overhead",
     "infiniband.csv",
     "name,link_4x_data_Gbps,link_4x_GBps_per_dir,link_4x_GBps_bidir" ORIGIN
     "QDR,40,5,10,M,made up for a test\n",
     2,
     "link_4x_data_Gbps",
     {"is 40", "4 lanes x 10 Gb/s x 0.8000 (8b/10b) gives 32"}},
    {"10 GbE at 2.5 GB/s one way",
     "ethernet.csv",
     "name,GBps_per_dir,GBps_bidir" ORIGIN "10GbE,2.5,5,L,a table of the web\n",
     2,
     "GBps_per_dir",
     {"is 2.5", "10 Gb/s / 8 gives 1.25"}},
    {"Ethernet lanes that do not carry the rate",
     "ethernet.csv",
     "name,lanes_typical" ORIGIN "400GbE,4x53,L,made up for a test\n",
     2,
     "lanes_typical",
     {"'4x53' signals 212 Gb/s", "400 Gb/s"}},
};

static void test_wrong_links_do_not_load(void **state)
{
    (void)state;
    overlay_check_wrong(cases, sizeof cases / sizeof *cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_links_do_not_load)};
    unsetenv("MESHWRIGHT_HWDB");
    unsetenv("MESHWRIGHT_DATA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
