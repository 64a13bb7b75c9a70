// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Zeroed, page-aligned memory that a plugin allocated for its host because it reaches it better
/// than other memory: shared with processes of this machine, pinned, registered with a library.
///
/// It belongs to the host from here on. It stays readable and writable until [#close], also when
/// the plugin that provided it was closed long before, or was closed for a defect while the host
/// goes on.
///
/// Threading: any thread.
public interface ProvidedMemory extends AutoCloseable {
    MemoryRange.Host range();

    /// Frees it. The host calls this once, last: after the provider was closed and everything else
    /// that reads or writes the memory.
    @Override
    void close();
}
