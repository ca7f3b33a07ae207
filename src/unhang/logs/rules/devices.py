"""Messages of drivers, buses and of other makers' devices: NVRM, PCIe, ROCm, Ascend, XLA (UH7030 ff.)."""

from __future__ import annotations

from unhang.logs.rules.base import OF_THE_ABSENT, LogRule

__all__ = ["RULES"]

RULES: tuple[LogRule, ...] = (
    LogRule(
        code="UH7046",
        slug="starts-noisily",
        family="evidence",
        role="noise",
        anchors=(
            "Unable to register cu",
            "cannot be initialized on [::]",
            "Could not find TensorRT",
        ),
        pattern=(
            r"Unable to register cu\w+ factory|server socket cannot be initialized on \[::\]"
            r"|Could not find TensorRT"
        ),
        meaning="Libraries mark it as an error or a warning at every start, and go on.",
        action="Nothing.",
        source="TensorFlow, torch c10d",
        fires=(
            "2025-01-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_fft.cc:477] "
            "Unable to register cuFFT factory: Attempting to register factory for plugin cuFFT when "
            "one has already been registered"
        ),
        spares="Unable to register curious sheep",
        harmless=True,
    ),
    LogRule(
        code="UH7031",
        slug="driver-trouble",
        family="device",
        role="observation",
        anchors=("NVRM: ", "nvidia-modeset: ERROR"),
        pattern=(
            r"NVRM: (?!Xid|loading).*?(?:RmInitAdapter failed|[Tt]imeout waiting for RPC|CoreDump"
            r"|[Ff]ailed|[Aa]ssert|is lost|not responding|GPU [Rr]eset)|nvidia-modeset: ERROR"
        ),
        meaning="NVIDIA's driver writes of trouble with a GPU, without a number of its table.",
        action="Read the lines around it; nvidia-bug-report.sh, and drain the node where it comes again.",
        source="open-gpu-kernel-modules#446, #1118",
        fires="NVRM: kflcnCoreDumpNondestructive_IMPL: TRACE: 03 = 0x0000000005c366c0",
        spares="NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        trust="C",
    ),
    LogRule(
        code="UH7032",
        slug="pcie-error",
        family="device",
        role="cause",
        anchors=(
            "PCIe Bus Error: severity=Uncorrected",
            "AER: Uncorrected",
            "AER: Multiple Uncorrected",
        ),
        pattern=(
            r"(?P<pci>[0-9a-fA-F:.]{7,12})?:? ?(?:PCIe Bus Error: severity=Uncorrected"
            r"|AER: (?:Multiple )?Uncorrected(?: \((?:Fatal|Non-Fatal)\))? error)"
        ),
        meaning="The PCIe bus lost data on the way to a device of this host.",
        action="lspci -s names the device; reseat or replace it, and drain the node.",
        source="Linux drivers/pci/pcie/aer.c",
        fires="pcieport 0000:40:01.1: AER: Uncorrected (Fatal) error received: 0000:41:00.0",
        spares="pcieport 0000:40:01.1: AER: Corrected error received: 0000:41:00.0",
        trust="B",
    ),
    LogRule(
        code="UH7033",
        slug="link-down",
        family="transport",
        role="observation",
        anchors=("Link down", "NIC Link is Down", "link is down", "device's health compromised"),
        pattern=(
            r"(?:mlx\d\w*|bnxt_en|ice|i40e|ena|bond\d+|ib\d+|eth\d+|en[ops]\w+)\b.*(?:Link down"
            r"|NIC Link is Down|link is down|device's health compromised)"
        ),
        meaning="A network link of this host went down.",
        action="Compare its time with the first failure; look at the cable and the switch port.",
        source="Linux network drivers",
        fires="mlx5_core 0000:5e:00.0 ib2: Link down",
        spares="the download link is down for maintenance",
        trust="B",
    ),
    LogRule(
        code="UH7034",
        slug="amdgpu-fault",
        family="device",
        role="cause",
        anchors=("amdgpu",),
        pattern=(
            r"amdgpu.*(?:ring \S+ timeout|GPU reset|[Uu]ncorrectable|page fault \(src_id|MODE\d reset"
            r"|GPU recovery|RAS poison|SMU: I'm not done)"
        ),
        meaning="AMD's driver reported a fault of a GPU.",
        action="rocm-smi and dmesg on that host; drain the node where it comes again.",
        source="Linux amdgpu",
        fires="amdgpu 0000:c1:00.0: amdgpu: ring sdma0 timeout, signaled seq=12, emitted seq=14",
        spares="amdgpu 0000:c1:00.0: amdgpu: SMU is initialized successfully!",
        trust="B",
    ),
    LogRule(
        code="UH7035",
        slug="ascend-rank-silent",
        family="absent",
        role="cause",
        anchors=("has not received the Notify record from remote rank",),
        pattern=r"has not received the Notify record from remote rank: ?\[(?P<ranks>[\d, ]+)\]",
        meaning="On Ascend: that rank did not come, or failed, where the others waited for it.",
        action="Look at that rank's log and device first; plog files of both hold more.",
        source="HCCL EI0002; vllm-ascend#3413",
        fires=(
            "EI0002: [PID: 2969] The wait execution of the Notify register times out. Reason: The "
            "Notify register has not received the Notify record from remote rank: [24]."
        ),
        spares="received the Notify record from remote rank: [24]",
        trust="B",
        blames="ranks",
        traits=OF_THE_ABSENT,
    ),
    LogRule(
        code="UH7036",
        slug="ascend-setup-failed",
        family="environment",
        role="cause",
        anchors=("EJ0001", "EJ0003", "EI0004", "EI0005", "EI0007", "EI0008", "EI0013", "EI0014"),
        pattern=(
            r"(?P<code>EJ000[13]|EI00(?:0[4578]|1[34])): (?:\[PID: \d+\] )?(?:[\d.:-]+ )?(?P<what>.{1,200}?)(?:$|  |Solution)"
        ),
        meaning="On Ascend: HCCL could not be set up with this device, these settings or this memory.",
        action="Read its reason and solution; end what is left of the last job on that device.",
        source="HCCL error codes; LlamaFactory#3839",
        fires=(
            "EJ0001: 2024-05-21-11:57:54.167.645 Failed to initialize the HCCP process. Reason: "
            "Maybe the last training process is running."
        ),
        spares="error code EJ0001 is documented",
        trust="B",
    ),
    LogRule(
        code="UH7037",
        slug="ascend-call-failed",
        family="failure",
        role="consequence",
        anchors=(
            "HCCL error in",
            "function error: Hccl",
            "HCCL function error",
            "call hccl api failed",
            "Stream synchronize timeout",
            "call acl api failed",
            *(", error code is ", "status == HCCL_SUCCESS"),
        ),
        pattern=(
            r"HCCL error in|function error ?: ?[Hh]ccl|call (?:hccl|acl) api failed"
            r"|\b[Hh]ccl\w+\(.*, error code is \d|Check failed: status == HCCL_SUCCESS"
        ),
        meaning="torch_npu passes on that a call of HCCL or of the device failed.",
        action="Read the line with a code of two letters and four digits below it.",
        source="torch_npu; vllm-ascend#486, Ascend/pytorch#48",
        fires=(
            "RuntimeError: InnerRunOpApi:torch_npu/csrc/framework/OpParamMaker.cpp:281 OPS function "
            "error: HcclAllreduce, error code is 6"
        ),
        spares="HCCL connected",
        trust="B",
    ),
    LogRule(
        code="UH7038",
        slug="coordination-lost-task",
        family="absent",
        role="cause",
        anchors=(
            "heartbeat timeout",
            "imed out task names",
            "threads to join the rendezvous, but only",
        ),
        pattern=(
            r"/task:(?P<ranks>\d+) heartbeat timeout"
            r"|[Tt]imed out task names:(?:\s*\S*/task:(?P<ranks2>\d+)|\s*$)"
            r"|Expected \d+ threads to join the rendezvous, but only \d+ of them arrived"
        ),
        below=r"^(?P<ranks3>(?:/job:\S+/task:\d+(?:\n|$))+)",
        below_mark="/task:",
        meaning="The coordination service (JAX, XLA, TensorFlow) does not hear from that task any more.",
        action="Look at that task's host and log first.",
        source="openxla coordination_service.cc, rendezvous.cc; jax#23599",
        fires=(
            "/job:jax_worker/replica:0/task:0 has been set to ERROR in coordination service: "
            "UNAVAILABLE: Task /job:jax_worker/replica:0/task:0 heartbeat timeout."
        ),
        spares="heartbeat timeout is 100 s",
        trust="B",
        blames="ranks",
    ),
    LogRule(
        code="UH7039",
        slug="coordination-ended",
        family="failure",
        role="consequence",
        anchors=(
            *("JAX distributed service detected fatal errors", "coordination service"),
            "to ensure a consistent program state",
        ),
        pattern=(
            r"JAX distributed service detected fatal errors|coordination service.*(?:UNAVAILABLE|Socket "
            r"closed|CANCELLED|shut ?down)|to ensure a consistent program state"
        ),
        meaning="The job was ended because one of its tasks was lost; which one stands elsewhere.",
        action="Find the first task that ended, or that stopped to answer.",
        source="JAX distributed runtime, torch_xla; jax#39095",
        fires="Terminating process because the JAX distributed service detected fatal errors.",
        spares="coordination service started",
        trust="B",
    ),
)
