// SPDX-License-Identifier: Apache-2.0
/// What stores on disk share: system calls that tests can replace
/// ([io.kvferry.toolkit.disk.FileCalls]), threads and deadlines ([io.kvferry.toolkit.disk.IoPool]),
/// aligned memory for O_DIRECT ([io.kvferry.toolkit.disk.AlignedStaging]), folders of their own
/// ([io.kvferry.toolkit.disk.FolderMaker]), and files that become visible whole or not at all
/// ([io.kvferry.toolkit.disk.FilePublisher]). The test jar has calls that fail, stall or die
/// (`FaultInjectingCalls`) and a power cut after any of them (`RecordingCalls`).
@NullMarked
package io.kvferry.toolkit.disk;

import org.jspecify.annotations.NullMarked;
