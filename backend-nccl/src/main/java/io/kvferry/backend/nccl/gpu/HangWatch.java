// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import io.kvferry.spi.ErrorCode;
import io.kvferry.spi.Failure;
import io.kvferry.spi.KvFerryException;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/// Detects calls of NCCL or of the driver that do not return. All transfers then fail, the
/// communicator of the call is aborted, and new work is refused until the call has returned.
///
/// Threading: the plane's clock, which must not wait for the loop or for NCCL.
final class HangWatch {
    private static final Logger LOG = LoggerFactory.getLogger(HangWatch.class);

    /// Looks within one limit of a turn.
    private static final int LOOKS = 8;

    private final Gpu gpu;
    private final Intake intake;
    private final OpenTransfers transfers;
    private final Links links;

    HangWatch(Gpu gpu, Intake intake, OpenTransfers transfers, Links links) {
        this.gpu = gpu;
        this.intake = intake;
        this.transfers = transfers;
        this.links = links;
    }

    void start() {
        gpu.clock().every(gpu.limits().turn().dividedBy(LOOKS), this::look);
    }

    private void look() {
        if (intake.hung() == null && gpu.loop().stuckFor().compareTo(gpu.limits().turn()) > 0) {
            hang();
        }
    }

    private void hang() {
        var why =
                new Failure(
                        ErrorCode.TIMEOUT,
                        "%s: a call of NCCL or of the GPU's driver has not returned within %d ms"
                                .formatted(gpu.name(), gpu.limits().turn().toMillis()));
        var within = gpu.calling().get();
        intake.hang(why);
        LOG.error("{}; nothing is taken until it does", why.message());
        transfers.end(why);
        gpu.post(this::returned);
        links.disconnect();
        if (within != null) {
            var _ =
                    Thread.ofPlatform()
                            .name(gpu.name() + "-abort")
                            .daemon(true)
                            .start(() -> abort(within));
        }
    }

    private void abort(Communicator within) {
        try {
            within.abort();
        } catch (KvFerryException e) {
            LOG.warn("{}: ending a link: {}", gpu.name(), e.toString());
        }
    }

    /// On the loop: the call has returned. The state that the links hold of their transfers is out
    /// of date.
    private void returned() {
        var why = intake.hung();
        if (why != null) {
            links.failAll(why);
            LOG.warn("{}: the call has returned", gpu.name());
            intake.resume();
        }
    }
}
