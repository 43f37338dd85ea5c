/*
 * Wrong rows of devices, systems and figures must not load, also not through
 * an overlay: brochure figures of both directions, DGX-2 with 8 GPUs, Gb/s for
 * GB/s, sparse peaks, missing sources, names used twice, broken files.
 */
#include "mw_test.h"

#include "hwdb_overlay.h"

#include <stdlib.h>
#include <string.h>

#define NEW_SYSTEM                                                             \
    "slug,name,gpus_per_node,gpu,intra_fabric,intra_class,nvswitch_gen,"       \
    "nvswitch_chips,intra_GBps_per_gpu_per_dir,peer_GBps_per_dir,"             \
    "scaleup_domain_gpus,nics_per_node,nic_Gbps,nic_type,inter_class,"         \
    "node_net_GBps_per_dir" ORIGIN
#define GPU_LINKS                                                              \
    "slug,links,link_GBps_per_dir,scaleup_GBps_per_dir,"                       \
    "scaleup_total_bidir_GBps" ORIGIN

static const struct wrong cases[] = {
    /* ---- devices ---- */
    {"H100 with the 900 GB/s in one direction",
     "gpus.csv",
     GPU_LINKS "h100-sxm,18,50,900,1800,H,a table of the web\n",
     2,
     "link_GBps_per_dir",
     {"is 50 but a link of NVLink 4 has 25 GB/s per direction", "nvlink.csv:"}},
    {"links x link = total",
     "gpus.csv",
     "slug,scaleup_GBps_per_dir,scaleup_total_bidir_GBps" ORIGIN
     "h100-sxm,900,1800,H,a table of the web\n",
     2,
     "scaleup_GBps_per_dir",
     {"is 900", "18 links x 25 GB/s per direction gives 450"}},
    {"total of one direction",
     "gpus.csv",
     "slug,scaleup_total_bidir_GBps" ORIGIN "a100-sxm-80gb,300,H,made up\n",
     2,
     "scaleup_total_bidir_GBps",
     {"is 300", "2 x 300 GB/s per direction gives 600"}},
    {"an H100 with 12 links",
     "gpus.csv",
     GPU_LINKS "h100-sxm,12,25,300,600,H,made up for a test\n",
     2,
     "links",
     {"is 12 but NVLink 4 has 18 a GPU", NULL}},
    {"the peak with sparsity",
     "gpus.csv",
     "slug,bf16_tflops,fp16_tflops,fp8_tflops" ORIGIN
     "h100-sxm,1978.9,1978.9,3957.8,H,a brochure\n",
     2,
     "bf16_tflops",
     {"132 SMs x 1830 MHz x 4096 FLOP a clock give 989.43", "sparsity"}},
    {"no status of ours",
     "gpus.csv",
     "slug,status" ORIGIN "h100-sxm,available,H,made up for a test\n",
     2,
     "status",
     {"'available' must be past, ga, china", NULL}},
    {"a negative rate",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,-3350,H,made up for a test\n",
     2,
     "mem_bw_GBps",
     {"-3350 is out of range", NULL}},
    {"a rate of zero",
     "gpus.csv",
     "slug,fp8_tflops" ORIGIN "a100-sxm-80gb,0,H,made up for a test\n",
     2,
     "fp8_tflops",
     {"must be positive; leave the cell empty", NULL}},
    {"no number",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3350GB/s,H,made up for a test\n",
     2,
     "mem_bw_GBps",
     {"'3350GB/s' must be a finite number", NULL}},
    {"NaN",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,nan,H,made up for a test\n",
     2,
     "mem_bw_GBps",
     {"'nan' must be a finite number", NULL}},
    {"a PCIe generation that is not there",
     "gpus.csv",
     "slug,pcie_gen" ORIGIN "h100-sxm,9,H,made up for a test\n",
     2,
     "pcie_gen",
     {"no generation '9' in pcie.csv", NULL}},

    /* ---- systems ---- */
    {"DGX-2 with 8 GPUs",
     "systems.csv",
     "slug,gpus_per_node" ORIGIN "dgx-2,8,M,a table of the web\n",
     2,
     "gpus_per_node",
     {"is 8 but the 16 GPUs of DGX-2 / HGX-2 are one node", "nvswitch.csv:"}},
    {"DGX-2 with a domain of 8",
     "systems.csv",
     "slug,gpus_per_node,scaleup_domain_gpus" ORIGIN
     "dgx-2,8,8,M,a table of the web\n",
     2,
     "scaleup_domain_gpus",
     {"is 8 but DGX-2 / HGX-2 has 16 GPUs in a domain", NULL}},
    {"DGX H100 with 900 GB/s in one direction",
     "systems.csv",
     "slug,intra_GBps_per_gpu_per_dir,peer_GBps_per_dir" ORIGIN
     "dgx-h100,900,900,H,a brochure\n",
     2,
     "intra_GBps_per_gpu_per_dir",
     {"is 900", "18 links x 25 GB/s per direction of h100-sxm gives 450"}},
    {"DGX H100 with 800 GB/s of network",
     "systems.csv",
     "slug,node_net_GBps_per_dir" ORIGIN "dgx-h100,800,H,a brochure\n",
     2,
     "node_net_GBps_per_dir",
     {"is 800", "8 NICs x 400 Gb/s / 8 gives 400"}},
    {"GB/s where Gb/s are meant",
     "systems.csv",
     "slug,nic_Gbps,node_net_GBps_per_dir" ORIGIN
     "dgx-h100,50,50,H,made up for a test\n",
     2,
     "nic_Gbps",
     {"a port of InfiniBand NDR gives 400", "is 50"}},
    {"the sum over NICs as one NIC",
     "systems.csv",
     "slug,nic_Gbps,nic_type,node_net_GBps_per_dir" ORIGIN
     "dgx-h100,3200,ConnectX-7,3200,H,made up for a test\n",
     2,
     "nic_Gbps",
     {"3200 Gb/s for one NIC do not fit the 63.015 GB/s of a PCIe 5 x16 slot",
      "a sum over NICs?"}},
    {"a NIC of no known speed",
     "systems.csv",
     "slug,nic_Gbps,nic_type,node_net_GBps_per_dir" ORIGIN
     "dgx-h100,50,ConnectX-7,50,H,made up for a test\n",
     2,
     "nic_Gbps",
     {"50 Gb/s is no port speed", "GB/s or a sum"}},
    {"a device that is not there",
     "systems.csv",
     "slug,gpu" ORIGIN "dgx-h100,h100-smx,H,made up for a test\n",
     2,
     "gpu",
     {"no device 'h100-smx' in gpus.csv", "did you mean 'h100-sxm'?"}},
    {"one peer faster than all links",
     "systems.csv",
     "slug,peer_GBps_per_dir" ORIGIN "azure-nd-mi300x-v5,512,H,made up\n",
     2,
     "peer_GBps_per_dir",
     {"is 512, above the 448", NULL}},
    {"a switched fabric with a slow peer",
     "systems.csv",
     "slug,peer_GBps_per_dir" ORIGIN "dgx-h100,25,H,made up for a test\n",
     2,
     "peer_GBps_per_dir",
     {"is 25", "switched fabric"}},
    {"NVSwitch in words alone",
     "systems.csv",
     "slug,nvswitch_gen,nvswitch_chips" ORIGIN "dgx-h100,,,H,made up\n",
     2,
     "nvswitch_gen",
     {"'NVSwitch3 x 4' needs nvswitch_gen", NULL}},
    {"a new system with both directions added",
     "systems.csv",
     NEW_SYSTEM "my-h100,My H100,8,h100-sxm,NVSwitch,nvlink4,3,4,900,900,8,8,"
                "400,NDR,ib,400,M,a table of the web\n",
     2,
     "intra_GBps_per_gpu_per_dir",
     {"is 900", "gives 450"}},
    {"a class of which nothing is known",
     "systems.csv",
     NEW_SYSTEM "my-box,My box,4,l40s,PCIe,pcie9,,,20,20,4,1,100,RoCE,roce,"
                "12.5,M,made up for a test\n",
     2,
     "intra_class",
     {"no intra_alpha_s.pcie9", NULL}},
    {"a network without a NIC",
     "systems.csv",
     NEW_SYSTEM "my-box,My box,4,l40s,PCIe,pcie4,,,20,20,4,0,0,,roce,0,M,made "
                "up for a test\n",
     2,
     "inter_class",
     {"'none' is for systems without one", NULL}},
    {"faster than its slot",
     "systems.csv",
     NEW_SYSTEM "my-box,My box,4,l40s,PCIe,pcie4,,,64,64,4,1,100,RoCE,roce,"
                "12.5,M,made up for a test\n",
     2,
     "intra_GBps_per_gpu_per_dir",
     {"is 64, above the 31.508", "pcie4 x16 slot in one direction"}},

    /* ---- figures ---- */
    {"measured above theory",
     "achieved_matmul.csv",
     "gpu,dtype,measured_tflops,theory_tflops,efficiency" ORIGIN
     "h100-sxm,bf16,1100,989.4,1.112,M,made up for a test\n",
     2,
     "measured_tflops",
     {"is 1100, above the 989.4 of theory_tflops", NULL}},
    {"efficiency that is not the ratio",
     "achieved_matmul.csv",
     "gpu,dtype,measured_tflops,theory_tflops,efficiency" ORIGIN
     "h100-sxm,bf16,794.5,989.4,0.9,M,made up for a test\n",
     2,
     "efficiency",
     {"is 0.9", "794.5 / 989.4 TFLOP/s gives 0.8030119"}},
    {"the peak of another device",
     "achieved_matmul.csv",
     "gpu,dtype,measured_tflops,theory_tflops,efficiency" ORIGIN
     "mi355x,bf16,1565,2300,0.680,M,a table of the web\n",
     2,
     "theory_tflops",
     {"is 2300", "the dense bf16 peak of mi355x in gpus.csv gives 2516"}},
    {"percent for a fraction",
     "constants.csv",
     "name,value,unit,date" ORIGIN
     "inter_efficiency.ib,91.5,ratio,2026-11-29,M,made up for a test\n",
     2,
     "value",
     {"a fraction (0.08, not 8)", NULL}},
    {"microseconds for seconds",
     "constants.csv",
     "name,value,unit,date" ORIGIN
     "inter_alpha_s.ib,4.6,s,2026-11-29,M,made up for a test\n",
     2,
     "value",
     {"seconds (1.5e-6, not 1.5)", NULL}},
    {"no SI unit",
     "constants.csv",
     "name,value,unit,date" ORIGIN
     "inter_alpha_s.ib,4.6,us,2026-11-29,M,made up for a test\n",
     2,
     "unit",
     {"'us' must be SI", NULL}},
    {"bandwidth that is not 1 / beta",
     "alpha_beta.csv",
     "system,scope,path,beta_us_per_MB" ORIGIN
     "dgx-2,inter,one NIC,10.5,M,made up for a test\n",
     2,
     "link_GBps_per_dir",
     {"is 9.52", "1000 / 10.5 us per MB of 10^6 bytes gives 95.238"}},
    {"low price above the high one",
     "costs.csv",
     "gpu,provider_or_tier,usd_per_gpu_hour_low,usd_per_gpu_hour_high,kind,"
     "as_of" ORIGIN "h100-sxm,test,5,3,on-demand,2026-05,M,made up\n",
     2,
     "usd_per_gpu_hour_low",
     {"is 5, above the 3", NULL}},
    {"latencies in no order",
     "latency.csv",
     "level,low_ns" ORIGIN "hbm,1000,M,made up for a test\n",
     2,
     "low_ns",
     {"is 1000, above the 290 of typical_ns", NULL}},

    /* ---- origin, names, shape ---- */
    {"no source",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3352,H,\n",
     2,
     "source",
     {"empty", NULL}},
    {"'same' as a source",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3352,H,same\n",
     2,
     "source",
     {"'same' is no source", NULL}},
    {"no source column",
     "gpus.csv",
     "slug,mem_bw_GBps,confidence\nh100-sxm,3352,H\n",
     0,
     NULL,
     {"gpus.csv: no column 'source'", "where it comes from"}},
    {"confidence in words",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3352,high,made up for a test\n",
     2,
     "confidence",
     {"'high' must be H", NULL}},
    {"an alias of another device",
     "gpus.csv",
     "slug,aliases" ORIGIN "h200-sxm,H200;H100,H,made up for a test\n",
     2,
     NULL,
     {"the name 'H100' belongs to", "gpus.csv:"}},
    {"a system with the name of a device",
     "systems.csv",
     "slug,aliases" ORIGIN "dgx-h100,h100,H,made up for a test\n",
     2,
     NULL,
     {"the name 'h100' belongs to", "gpus.csv:"}},
    {"a slug with spaces",
     "systems.csv",
     NEW_SYSTEM "My Box,My H100,8,h100-sxm,NVSwitch,nvlink4,3,4,450,450,8,8,"
                "400,NDR,ib,400,M,made up for a test\n",
     2,
     "slug",
     {"'My Box' may have lower-case letters", NULL}},
    {"the same key twice",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3350,H,one\nH100-SXM,3352,H,two\n",
     3,
     "slug",
     {"the same key as line 2", NULL}},
    {"a new device without its peak",
     "gpus.csv",
     "slug,name,vendor,form,arch,year,status,mem_GiB,mem_bw_GBps,scaleup" ORIGIN
     "my-gpu,My GPU,ACME,PCIe,New,2026,ga,80,3000,none,L,made up\n",
     2,
     "bf16_tflops",
     {"needs the peak of fp32 or bf16", NULL}},
    {"an unknown column",
     "gpus.csv",
     "slug,mem_bw_GBs" ORIGIN "h100-sxm,3352,H,made up for a test\n",
     0,
     NULL,
     {"unknown column 'mem_bw_GBs'", "did you mean 'mem_bw_GBps'"}},
    {"no key column",
     "gpus.csv",
     "mem_bw_GBps" ORIGIN "3352,H,made up for a test\n",
     0,
     NULL,
     {"no column 'slug'", "key"}},
    {"a short row",
     "gpus.csv",
     "slug,mem_bw_GBps" ORIGIN "h100-sxm,3352,H\n",
     2,
     NULL,
     {"row has 3 cells but the header has 4", NULL}},
    {"an empty file", "gpus.csv", "", 0, NULL, {"gpus.csv: is empty", NULL}},
    {"kernels of an unknown device",
     "kernels.csv",
     "device,op,pass,dtype,m,n,k,time_s,source\n"
     "host-gpu,gemm,fwd,fp32,1,1,1,1e-3,calibrate\n",
     2,
     "device",
     {"no device 'host-gpu'", "host-cpu"}},
    {"kernels in microseconds",
     "kernels.csv",
     "device,op,pass,dtype,m,n,k,time_s,source\n"
     "host-cpu,gemm,fwd,fp32,1,1,1,1000000,calibrate\n",
     2,
     "time_s",
     {"microseconds?", NULL}},
    {"kernels of no precision",
     "kernels.csv",
     "device,op,pass,dtype,m,n,k,time_s,source\n"
     "host-cpu,gemm,fwd,float,1,1,1,1e-3,calibrate\n",
     2,
     "dtype",
     {"'float' must be fp32", NULL}},
    {"a curve of no ranks",
     "curves.csv",
     "system,op,ranks,bytes,time_s,source\n"
     "this-machine,all_reduce,0,8,1e-6,calibrate\n",
     2,
     "ranks",
     {"at least 1", NULL}},
};

static void test_wrong_rows_do_not_load(void **state)
{
    (void)state;
    overlay_check_wrong(cases, sizeof cases / sizeof *cases);
}

/* Two rows wrong: both are reported, and a wrong row in the first table does
 * not hide one in another. */
static void test_findings_are_collected(void **state)
{
    (void)state;
    struct mw_err err = {0};
    struct mw_hwdb *db = NULL;
    enum mw_status status =
        overlay_load("systems.csv",
                     "slug,node_net_GBps_per_dir" ORIGIN
                     "dgx-h100,800,H,a brochure\ndgx-a100,400,H,a brochure\n",
                     &db, &err);
    assert_int_equal(status, MW_EINPUT);
    assert_int_equal(err.n_findings, 2);
    assert_non_null(strstr(err.text, "systems.csv:2: "));
    assert_non_null(strstr(err.text, "systems.csv:3: "));
    assert_non_null(strstr(err.text, "8 NICs x 200 Gb/s / 8 gives 200"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_rows_do_not_load),
        cmocka_unit_test(test_findings_are_collected)};
    unsetenv("MESHWRIGHT_HWDB");
    unsetenv("MESHWRIGHT_DATA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
