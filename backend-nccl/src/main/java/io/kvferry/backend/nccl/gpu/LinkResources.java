// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.nccl.gpu;

import org.jspecify.annotations.Nullable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.util.Objects;
import java.util.function.Consumer;

/// What a link has of the GPU: a communicator, a stream, and a buffer for each direction, made when
/// they are needed. They are given up once, when the link needs them no more and no copy uses the
/// buffers.
///
/// Threading: confined to the loop, except [#free].
final class LinkResources {
    private static final Logger LOG = LoggerFactory.getLogger(LinkResources.class);

    private final Gpu gpu;
    private final String peer;
    private final Consumer<LinkResources> givenUp;
    private @Nullable Communicator communicator;
    private GpuDriver.@Nullable Stream stream;
    private GpuDriver.@Nullable Buffer sendBuffer;
    private GpuDriver.@Nullable Buffer receiveBuffer;

    /// Copies that use a buffer.
    private int copies;

    private boolean unneeded;
    private boolean abandoned;

    /// @param givenUp called once, on the loop, when the resources must be freed
    LinkResources(Gpu gpu, String peer, Consumer<LinkResources> givenUp) {
        this.gpu = gpu;
        this.peer = peer;
        this.givenUp = givenUp;
    }

    /// Starts to create the communicator, and opens the stream.
    ///
    /// @param over called after each operation on the communicator
    Turns join(byte[] id, int rank, Consumer<Turns.Turn> over) {
        var made =
                Communicator.begin(gpu.library(), id, rank, gpu.limits().channels(), gpu.calling());
        communicator = made;
        var opened = gpu.driver().openStream();
        stream = opened;
        return new Turns(made, opened, gpu.limits().turn(), over);
    }

    @Nullable Communicator communicator() {
        return communicator;
    }

    /// Ends the communicator in order, which is [Communicator#ready] after its end was begun.
    void destroyCommunicator() {
        Objects.requireNonNull(communicator).destroy();
        communicator = null;
    }

    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY]
    GpuDriver.Buffer sendBuffer() {
        if (sendBuffer == null) {
            sendBuffer = gpu.driver().allocate(gpu.limits().slotBytes());
        }
        return sendBuffer;
    }

    /// @throws io.kvferry.spi.KvFerryException [io.kvferry.spi.ErrorCode#NO_MEMORY]
    GpuDriver.Buffer receiveBuffer() {
        if (receiveBuffer == null) {
            receiveBuffer = gpu.driver().allocate(gpu.limits().slotBytes());
        }
        return receiveBuffer;
    }

    /// Starts a copy from or to a buffer, which is over with [#copied].
    ///
    /// @param notBegun where there was no memory for its thread
    void copy(Runnable notBegun, Runnable work) {
        copies++;
        boolean begun = false;
        try {
            gpu.copy(work);
            begun = true;
        } finally {
            if (!begun) {
                copies--;
                notBegun.run();
            }
        }
    }

    /// Called on the loop when a copy has ended.
    void copied() {
        copies--;
        giveUpUnused();
    }

    boolean copying() {
        return copies > 0;
    }

    /// The link is over.
    void giveUp() {
        unneeded = true;
        giveUpUnused();
    }

    private void giveUpUnused() {
        if (unneeded && copies == 0 && !abandoned) {
            abandoned = true;
            givenUp.accept(this);
        }
    }

    /// Aborts the communicator and frees the rest. May block for long, so it does not run on the
    /// loop, which no longer uses any of it.
    void free() {
        quietly(gpu.driver()::bind);
        if (communicator != null) {
            quietly(communicator::abort);
        }
        if (stream != null) {
            quietly(stream::close);
        }
        if (sendBuffer != null) {
            quietly(sendBuffer::close);
        }
        if (receiveBuffer != null) {
            quietly(receiveBuffer::close);
        }
    }

    private void quietly(Runnable step) {
        try {
            step.run();
        } catch (RuntimeException | Error e) { // the rest must be freed as well
            LOG.warn("{}: ending the link with {}: {}", gpu.name(), peer, e.toString());
        }
    }
}
