// SPDX-License-Identifier: Apache-2.0
/// What stores on disk share: system calls that tests can replace
/// ([io.kvferry.toolkit.disk.FileCalls]), threads and deadlines ([io.kvferry.toolkit.disk.IoPool]),
/// aligned memory for O_DIRECT ([io.kvferry.toolkit.disk.AlignedStaging]), files that become
/// visible whole or not at all ([io.kvferry.toolkit.disk.FilePublisher]), and which files to delete
/// when a quota is reached ([io.kvferry.toolkit.disk.SpaceCatalog]), by one process at a time
/// ([io.kvferry.toolkit.disk.EvictionLock]).
@NullMarked
package io.kvferry.toolkit.disk;

import org.jspecify.annotations.NullMarked;
