// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.memory;

/// Zeroed, page-aligned memory that a plugin allocated for its host because it can transfer from it
/// faster: shared with processes of this machine, pinned, or registered with a library.
///
/// The host owns it. It stays readable and writable until [#close], even if the plugin that
/// provided it was closed earlier.
///
/// Threading: any thread.
public interface ProvidedMemory extends AutoCloseable {
    MemoryRange.Host range();

    /// Frees it. The host calls this once, last: after the provider was closed and everything else
    /// that reads or writes the memory.
    @Override
    void close();
}
