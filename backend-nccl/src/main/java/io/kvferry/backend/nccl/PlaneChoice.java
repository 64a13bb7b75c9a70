// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl;

import io.kvferry.backend.nccl.gpu.GpuDriver;
import io.kvferry.backend.nccl.gpu.JcudaDriver;
import io.kvferry.backend.nccl.gpu.NcclLibrary;
import io.kvferry.backend.nccl.gpu.NcclPlane;
import io.kvferry.backend.nccl.gpu.TensorLanes;
import io.kvferry.backend.nccl.plane.DataPlane;
import io.kvferry.backend.nccl.plane.HostPlane;
import io.kvferry.backend.nccl.plane.JoinedPlane;
import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Finding;
import io.kvferry.spi.KvFerryException;
import io.kvferry.toolkit.crossmemory.CrossMemory;
import io.kvferry.toolkit.doctor.Machine;
import io.kvferry.toolkit.recovery.OpeningParts;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.function.Supplier;

/// Chooses the data planes of a worker, by option `data_plane`:
///
/// ```
/// tcp    TCP
/// host   copies by the kernel between processes of one host, else TCP
/// nccl   NCCL only; BAD_CONFIG if it is not available
/// auto   nccl and host; host alone if NCCL is not available
/// ```
///
/// Threading: any thread; no state.
final class PlaneChoice {
    private static final Logger LOG = LoggerFactory.getLogger(PlaneChoice.class);
    private static final String JCUDA_CLASS = "jcuda.runtime.JCuda";
    private static final String GET_JCUDA =
            "put jcuda-12.6.0.jar and jcuda-natives-12.6.0-linux-x86_64.jar (org.jcuda, Maven Central)"
                    + " into the folder of this plugin";

    /// Values of the option.
    enum Kind {
        AUTO,
        HOST,
        TCP,
        NCCL
    }

    private PlaneChoice() {}

    /// @param host announced to peers
    /// @param bindHost address that ports listen on
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when NCCL is required and not available
    static DataPlane open(P2pSettings settings, int rank, String host, String bindHost) {
        return open(
                settings.dataPlane(),
                () -> openNccl(settings, rank, host, bindHost),
                () -> openHost(settings, rank, host, bindHost));
    }

    /// As [#open(P2pSettings, int, String, String)], of the planes that these open.
    static DataPlane open(Kind kind, Supplier<DataPlane> ncclPlane, Supplier<DataPlane> hostPlane) {
        try (var parts = new OpeningParts()) {
            var planes = new ArrayList<DataPlane>();
            if (kind == Kind.NCCL || kind == Kind.AUTO) {
                try {
                    planes.add(parts.add(ncclPlane.get(), DataPlane::close));
                } catch (KvFerryException e) {
                    if (kind == Kind.NCCL) {
                        throw new KvFerryException(
                                ErrorCode.BAD_CONFIG,
                                "data_plane is nccl, but " + e.getMessage(),
                                e);
                    }
                    LOG.info("data plane host: {}", e.getMessage());
                }
            }
            if (kind != Kind.NCCL) {
                planes.add(parts.add(hostPlane.get(), DataPlane::close));
            }
            var joined = new JoinedPlane(planes);
            parts.keep();
            return joined;
        }
    }

    /// Opens the transport for tensors of protocol 0.
    ///
    /// @throws KvFerryException [ErrorCode#BAD_CONFIG] when NCCL is not available, with the reason
    static TensorLanes openLanes(P2pSettings settings, int rank) {
        if (settings.dataPlane() == Kind.HOST || settings.dataPlane() == Kind.TCP) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol 0 moves tensors over NCCL; data_plane has to be auto or nccl");
        }
        try {
            return openDriver(
                    rank,
                    (library, driver) ->
                            new TensorLanes(
                                    "p2p-vllm-" + rank,
                                    library,
                                    driver,
                                    TensorLanes.Limits.standard(settings.ncclChannels())));
        } catch (KvFerryException e) {
            throw new KvFerryException(
                    ErrorCode.BAD_CONFIG,
                    "protocol is 0, whose tensors travel over NCCL, but " + e.getMessage(),
                    e);
        }
    }

    private static DataPlane openHost(
            P2pSettings settings, int rank, String host, String bindHost) {
        boolean tcp = settings.dataPlane() == Kind.TCP;
        if (!tcp) {
            LOG.info("within this host: {}", CrossMemory.availability(""));
        }
        return HostPlane.open(
                "p2p-data-" + rank,
                host,
                bindHost,
                tcp ? HostPlane.Ways.TCP : HostPlane.Ways.ANY,
                settings.checksum());
    }

    private static DataPlane openNccl(
            P2pSettings settings, int rank, String host, String bindHost) {
        var limits = NcclPlane.Limits.standard(settings.ncclChannels());
        return openDriver(
                rank,
                (library, driver) ->
                        NcclPlane.open(
                                "p2p-nccl-" + rank, host, bindHost, library, driver, limits));
    }

    private interface Opener<T> {
        T open(NcclLibrary library, GpuDriver driver);
    }

    private static <T> T openDriver(int rank, Opener<T> opener) {
        if (!hasJcuda()) {
            throw new KvFerryException(ErrorCode.UNAVAILABLE, "JCuda is not there: " + GET_JCUDA);
        }
        return openOver(
                JcudaDriver.open(rank),
                driver -> {
                    var library = NcclLibrary.load();
                    LOG.info("{}, NCCL {}", driver.name(), library.versionText());
                    return opener.open(library, driver);
                });
    }

    /// Opens what owns the driver from then on. If that fails, the driver is closed.
    static <T> T openOver(GpuDriver driver, Function<GpuDriver, T> opener) {
        try (var parts = new OpeningParts()) {
            parts.add(driver, GpuDriver::close);
            var opened = opener.apply(driver);
            parts.keep();
            return opened;
        }
    }

    /// Without loading it.
    private static boolean hasJcuda() {
        var path = JCUDA_CLASS.replace('.', '/') + ".class";
        return PlaneChoice.class.getClassLoader().getResource(path) != null;
    }

    /// What the doctor says.
    static List<Finding> findings() {
        var use = "data plane nccl: ";
        return List.of(
                Machine.library(
                        "NCCL",
                        NcclLibrary.VARIABLE,
                        NcclLibrary.NAME,
                        use + NcclLibrary.HOW_TO_GET),
                Machine.library(
                        "CUDA driver", "libcuda.so.1", use + "an NVIDIA GPU and NVIDIA's driver"),
                hasJcuda()
                        ? Finding.ok("JCuda", "on the class path")
                        : Finding.optional("JCuda", "not on the class path", use + GET_JCUDA));
    }
}
