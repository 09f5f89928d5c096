// SPDX-License-Identifier: Apache-2.0

package eth

import (
	"time"

	"github.com/ernic-dev/ernic/device/ionic/abi"
	"github.com/ernic-dev/ernic/device/ionic/intr"
)

// Limits the identity reports; the device really holds them.
const (
	maxMACFilters = 128 // unicast and multicast together
	rssTableSize  = 128
	minFrame      = 64
)

// How the driver gets from microseconds to coalescing units, of which it takes up
// to 0x3f.
const (
	coalesceMult = 1
	coalesceDiv  = uint32(intr.CoalesceUnit / time.Microsecond)
)

func (l *LIF) cmdIdentify(r *request) error {
	asked := r.cmd.Version()
	if asked == 0 {
		return refuse(abi.StatusEVersion, "identity version 0 does not exist")
	}
	drv := abi.DriverIdentity(r.data)
	l.log.Info().Uint32("os_type", drv.OSType()).Str("driver", drv.DriverVersion()).Msg("driver identified itself")
	v := min(asked, abi.DeviceIdentityVersion)
	id := abi.DeviceIdentity(r.answer())
	id.SetVersion(v)
	id.SetPorts(1)
	id.SetLIFs(1)
	id.SetIntrs(uint32(l.cfg.Vectors))
	id.SetDoorbellPages(abi.DoorbellPages)
	id.SetCoalesce(coalesceMult, coalesceDiv)
	id.SetCapabilities(0)
	r.comp.SetVersion(abi.OpIdentify, v)
	return nil
}

func (l *LIF) cmdLIFIdentify(r *request) error {
	if t := r.cmd[1]; t != 0 {
		return refuse(abi.StatusEInval, "LIF type %d does not exist", t)
	}
	id := abi.LIFIdentity(r.answer())
	caps := uint64(abi.LIFCapEth)
	if l.cfg.RDMA != nil {
		caps |= abi.LIFCapRDMA
		l.cfg.RDMA.Identity(id.RDMA())
	}
	id.SetCapabilities(caps)
	id.SetEthVersion(abi.LIFIdentityVersion)
	id.SetFilters(maxMACFilters, maxMACFilters)
	id.SetRSSTableSize(rssTableSize)
	id.SetFrameSize(minFrame, uint32(l.maxFrame))
	c := id.Config()
	c.SetState(abi.LIFEnable)
	c.SetMTU(defaultMTU)
	c.SetMAC(l.cfg.MAC)
	c.SetFeatures(l.cfg.Offload)
	l.setQueueCounts(c)
	r.comp.SetVersion(abi.OpLIFIdentify, abi.LIFIdentityVersion)
	return nil
}

func (l *LIF) setQueueCounts(c abi.LIFConfig) {
	c.SetQueueCount(abi.QTypeAdmin, 1)
	c.SetQueueCount(abi.QTypeNotify, 1)
	c.SetQueueCount(abi.QTypeRx, uint32(l.cfg.Queues))
	c.SetQueueCount(abi.QTypeTx, uint32(l.cfg.Queues))
}

// lifConfig fills the configuration block of lif_info with what is in force.
// Holds ctl.
func (l *LIF) lifConfig(b []byte) {
	c := abi.LIFConfig(b)
	state := abi.LIFEnable
	if l.ctl.quiesced {
		state = abi.LIFQuiesce
	}
	c.SetState(state)
	c.SetName(l.ctl.name[:])
	c.SetMTU(l.ctl.mtu)
	c.SetMAC(l.ctl.mac)
	c.SetFeatures(l.ctl.features)
	l.setQueueCounts(c)
}

// Queue structure versions: receive version 0 is completion queue and
// scatter-gather; transmit version 1 has 16-slot scatter-gather descriptors,
// version 0 has 8-slot ones.
const (
	txVersion = 1
	rxVersion = 0
)

func (l *LIF) cmdQIdentify(r *request) error {
	if t := r.cmd.LIFIndex(); t != 0 { // this command has the LIF type there
		return refuse(abi.StatusEInval, "LIF type %d does not exist", t)
	}
	q := abi.QIdentity{Supported: 1}
	switch t := r.cmd.QIdentifyType(); t {
	case abi.QTypeAdmin:
		q.Features, q.DescSize, q.CompSize = abi.QFeatureCQ, abi.AdminDescSize, abi.AdminCompSize
	case abi.QTypeNotify:
		q.DescSize, q.CompSize = abi.NotifyDescSize, abi.NotifyEventSize
	case abi.QTypeRx:
		q.Features = abi.QFeatureCQ | abi.QFeatureSG
		q.DescSize, q.CompSize = abi.RxDescSize, abi.RxCompSize
		q.SGDescSize, q.MaxSG, q.SGDescStride = abi.RxSGDescSize, abi.RxMaxSG, abi.RxMaxSG
	case abi.QTypeTx:
		q.Version, q.Supported = min(r.cmd.Version(), txVersion), 1<<txVersion|1
		q.Features = abi.QFeatureCQ | abi.QFeatureSG
		q.DescSize, q.CompSize = abi.TxDescSize, abi.TxCompSize
		q.SGDescSize, q.MaxSG, q.SGDescStride = abi.TxSGDescSize, abi.TxMaxSG, abi.TxMaxSG+1
		if q.Version == 0 {
			q.SGDescSize, q.MaxSG, q.SGDescStride = abi.TxSGDescSizeV0, abi.TxMaxSGV0, abi.TxMaxSGV0
		}
	default:
		return refuse(abi.StatusEQType, "there are no queues of type %v", t)
	}
	q.Encode(r.answer())
	r.comp.SetVersion(abi.OpQIdentify, q.Version)
	return nil
}
