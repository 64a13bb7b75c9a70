// SPDX-License-Identifier: Apache-2.0
/// What stores on disk share: system calls that tests can replace
/// ([io.kvferry.toolkit.disk.FileCalls]), threads and deadlines ([io.kvferry.toolkit.disk.IoPool]),
/// aligned memory for O_DIRECT ([io.kvferry.toolkit.disk.AlignedStaging]), folders of their own
/// ([io.kvferry.toolkit.disk.FolderMaker]), and files that become visible whole or not at all
/// ([io.kvferry.toolkit.disk.FilePublisher]). The test jar has calls that fail, stall or die
/// (`FaultInjectingCalls`) and a power cut after any of them (`RecordingCalls`).
///
/// The disk tier of the Mooncake store uses the calls, the staging,
/// [io.kvferry.toolkit.disk.NativeCrc] and [io.kvferry.toolkit.files.PrivateFolder]; only
/// backend-disk uses the rest. The tier's callers wait for their reads and may abandon them, so it
/// uses a bounded executor; [io.kvferry.toolkit.disk.IoPool] has callbacks and allocates nothing
/// per task. The tier creates one folder, once, and may lose it with its cached contents in a power
/// failure, so it does not need [io.kvferry.toolkit.disk.FolderMaker].
@NullMarked
package io.kvferry.toolkit.disk;

import org.jspecify.annotations.NullMarked;
